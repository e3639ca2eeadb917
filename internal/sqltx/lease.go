package sqltx

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/leased"
	"github.com/millpond-go/millpond/stores"
)

// Lease makes a handler of an effect outside the database, and a write in the completing
// transaction, which the context has under a key. Without a lease it returns ErrNoLease before the
// effect.
func Lease[T, R any](key any, effect func(ctx context.Context, msg *message.Message) (R, error), write func(ctx context.Context, tx T, msg *message.Message, result R) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		ctx := msg.Context()
		run, ok := leased.Of(ctx)
		if !ok {
			return stores.ErrNoLease
		}
		var (
			entry  Entry
			result R
		)
		_ = entry.Enter()
		err := run.OnComplete(func(ctx context.Context) error {
			if err := entry.Doomed(); err != nil { // a middleware hid the failure
				return err
			}
			c, ok := ctx.Value(key).(Carrier[T])
			if !ok {
				return stores.ErrNoTx
			}
			if err := c.Enter(); err != nil {
				return err
			}
			err := write(ctx, c.Native(), msg, result)
			c.Returned(err)
			return err
		})
		if err != nil {
			return err
		}
		result, err = effect(ctx, msg)
		entry.Returned(err)
		return err
	}
}
