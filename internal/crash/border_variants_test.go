package crash

import (
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
)

// Variants of the rules that keep what a handler does from other messages: I13.

func init() { maps.Copy(variants, borderVariants) }

var borderVariants = map[string]variant{
	"sessions kept": {
		rule: "a connection whose session was changed serves no other message", system: watched, find: []string{"I13"},
		inSQL: true, with: []conduct{settings, settings, settings},
		store: func(b *backend) middleware.Store { return &noTag{b.store, b} }, // as hand-made code does
	},
	"inherited": {
		rule: "what is read from a context belongs to one message", find: []string{"I1", "I13"},
		with:   []conduct{echoes, echoes, spawns},
		around: inherits,
	},
}

// inherits runs a message in the transaction that it finds in its context, as if that were
// of its own attempt.
func inherits(inbox message.HandlerMiddleware) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		next := inbox(h)
		return func(msg *message.Message) ([]*message.Message, error) {
			if storyOf(msg.Context()) != (story{}) {
				return h(msg)
			}
			return next(msg)
		}
	}
}

// watched are the stores with a server that see each statement of a handler.
var watched = []string{"postgres", "postgres+sql", "mariadb", "mysql"}
