package sqltx

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// Carrier is an attempt as its handler sees it, with the driver's transaction.
type Carrier[T any] interface {
	Native() T
	Enter() error
	Returned(err error) // called with the typed handler's error
}

// FromContext returns the transaction of the attempt that a context has under a key.
func FromContext[T any](ctx context.Context, key any) (tx T, ok bool) {
	c, ok := ctx.Value(key).(Carrier[T])
	if ok {
		tx = c.Native()
	}
	return tx, ok
}

// Handler gives f the transaction of the attempt that its message's context has under a key.
// Without an attempt the handler returns ErrNoTx.
func Handler[T any](key any, f func(ctx context.Context, tx T, msg *message.Message) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		c, ok := msg.Context().Value(key).(Carrier[T])
		if !ok {
			return stores.ErrNoTx
		}
		if err := c.Enter(); err != nil {
			return err
		}
		err := f(msg.Context(), c.Native(), msg)
		c.Returned(err)
		return err
	}
}
