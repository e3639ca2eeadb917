package brokers

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

type copyKey struct{}

// keyed is one message's key. It names the message because contexts travel to other messages.
type keyed struct {
	msg *message.Message
	key []byte
}

// WithKey returns a context, for msg.SetContext, that gives a publisher the message's key, such as
// the Delivery.Key of the message it copies. Publishers of brokers without keys ignore it. The key
// is not copied: do not change it.
func WithKey(ctx context.Context, msg *message.Message, key []byte) context.Context {
	return context.WithValue(ctx, copyKey{}, keyed{msg: msg, key: key})
}

// KeyOf returns the key that WithKey set for msg, or nil. It is for adapters.
func KeyOf(msg *message.Message) []byte {
	if k, ok := msg.Context().Value(copyKey{}).(keyed); ok && k.msg == msg {
		return k.key
	}
	return nil
}
