package crash

import (
	"context"
	"errors"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
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
		around: inherits, shares: true,
	},
	"any key": {
		rule: "a message whose id cannot be found is never run", find: []string{"I1"},
		with:   []conduct{keyless, keyless, keyless},
		config: anyKey,
	},
	"nothing kept": {
		rule: "what cannot be kept is not acked", find: []string{"I2", "I6"},
		with:   []conduct{sealed, sealed, sealed},
		config: nothingKept,
	},
	"unmarked": {
		rule: "a refusal that cannot pass ends at once", find: []string{"I10"},
		with:   []conduct{unkept, unkept},
		config: unmarked,
	},
	"no copies": {
		rule: "a dead letter is recorded when its copy is published", find: []string{"copy"},
		with:   []conduct{permanent},
		config: func(c *middleware.InboxConfig) { c.DeadLetters = middleware.DeadLetterConfig{} },
	},
}

// anyKey takes the panic of a key function for an id.
func anyKey(c *middleware.InboxConfig) {
	c.Keys = keys.First(keys.Func("crash", func(msg *message.Message) (id string) {
		defer func() {
			if recover() != nil {
				id = "unknown"
			}
		}()
		return identify(msg)
	})).Then(keys.UUID())
}

// nothingKept keeps nothing of a message that the codec refuses, and says that it did.
func nothingKept(c *middleware.InboxConfig) {
	seal := c.Keep.Codec.Encode
	c.Keep.Codec.Encode = func(ctx context.Context, kept middleware.Kept) (sealed middleware.Kept, err error) {
		defer func() {
			if recover() != nil || err != nil {
				sealed, err = middleware.Kept{}, nil
			}
		}()
		return seal(ctx, kept)
	}
}

// unmarked lets a codec's refusal be any, so that it may pass.
func unmarked(c *middleware.InboxConfig) {
	seal := c.Keep.Codec.Encode
	c.Keep.Codec.Encode = func(ctx context.Context, kept middleware.Kept) (middleware.Kept, error) {
		kept, err := seal(ctx, kept)
		if err != nil {
			err = errors.New(err.Error())
		}
		return kept, err
	}
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
