package middleware

import (
	"bytes"
	"context"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Arrival is a middleware that notes the message as it arrives there, before middlewares
// further in, around the inbox, change it: open it, unpack it, give it another UUID. That is
// what the inbox then keeps of a message that has failed, puts into quarantine and copies
// for dead letters. Without it that is the message as it reaches the inbox.
//
// Give everything from Arrival to the inbox to [RetryWorkerConfig].Middlewares as well: what
// is kept is what comes to the first of them. A worker and a router.Service have one of
// their own, outermost. If there are several the innermost counts.
//
// When what is further in returns, the message and its context are again as they arrived,
// so that a Retry outside of Arrival begins anew. The payload is copied. Arrival is safe for
// concurrent use.
func Arrival(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx, payload := msg.Context(), msg.Payload
		a := &arrived{msg: msg, uuid: msg.UUID, payload: bytes.Clone(payload), metadata: maps.Clone(msg.Metadata)}
		defer func() {
			if !bytes.Equal(payload, a.payload) { // somebody has opened it in place
				payload = bytes.Clone(a.payload)
			}
			msg.UUID, msg.Payload, msg.Metadata = a.uuid, payload, maps.Clone(a.metadata)
			msg.SetContext(ctx)
		}()
		msg.SetContext(context.WithValue(ctx, arrivedKey{}, a))
		return next(msg)
	}
}

type arrivedKey struct{}

// arrived is a message as it arrived. Nobody changes what it refers to.
type arrived struct {
	msg      *message.Message // contexts travel to others
	uuid     string
	payload  []byte
	metadata message.Metadata
}

// origin is the message as it arrived: at the inbox, or at an Arrival around it.
func (v *visit) origin() arrived {
	if a, ok := v.arrival.Contexts.Shutdown.Value(arrivedKey{}).(*arrived); ok && a.msg == v.msg {
		return *a
	}
	return v.was
}
