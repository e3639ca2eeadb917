package brokers

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

type copyKey struct{}

// keyed is a key for one message: contexts travel to other messages.
type keyed struct {
	msg *message.Message
	key []byte
}

// WithKey returns a context, for msg.SetContext, that gives a publisher the key of a message,
// such as the Delivery.Key of the message that it copies. Publishers of brokers without keys
// ignore it.
func WithKey(ctx context.Context, msg *message.Message, key []byte) context.Context {
	return context.WithValue(ctx, copyKey{}, keyed{msg: msg, key: key})
}

// KeyOf returns the key that WithKey set, or nil. It is for adapters.
func KeyOf(msg *message.Message) []byte {
	if k, ok := msg.Context().Value(copyKey{}).(keyed); ok && k.msg == msg {
		return k.key
	}
	return nil
}
