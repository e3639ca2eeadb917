package middleware_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
)

// A handler under a lease that charges, ships and mails goes on where an attempt before it has
// stopped.
func ExampleOnce() {
	type provider interface {
		Charge(ctx context.Context, idempotencyKey string, order []byte) (receipt string, err error)
		Ship(ctx context.Context, idempotencyKey, receipt string) (parcel int64, err error)
	}
	fulfil := func(provider provider) message.NoPublishHandlerFunc {
		return func(msg *message.Message) error {
			ctx := msg.Context()
			receipt, err := middleware.Once(ctx, "charge", func(ctx context.Context) (string, error) {
				key, _ := middleware.IdempotencyKey(ctx) // of this step
				return provider.Charge(ctx, key, msg.Payload)
			})
			if err != nil {
				return err
			}
			_, err = middleware.Once(ctx, "ship", func(ctx context.Context) (int64, error) {
				key, _ := middleware.IdempotencyKey(ctx)
				return provider.Ship(ctx, key, receipt)
			})
			return err
		}
	}
	_ = fulfil
}
