package brokers

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

type copyKey struct{}

// keyed names the message that the key belongs to: contexts travel to others.
type keyed struct {
	msg *message.Message
	key []byte
}

// WithKey returns a context, for msg.SetContext, that tells a publisher the key of a message
// which is a copy of another one: that of its Delivery. Publishers of brokers without keys
// ignore it.
func WithKey(ctx context.Context, msg *message.Message, key []byte) context.Context {
	return context.WithValue(ctx, copyKey{}, keyed{msg: msg, key: key})
}

// KeyOf returns the key that WithKey has set; nil if none was. It is for adapters.
func KeyOf(msg *message.Message) []byte {
	if k, ok := msg.Context().Value(copyKey{}).(keyed); ok && k.msg == msg {
		return k.key
	}
	return nil
}
