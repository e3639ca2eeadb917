package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/google/uuid"
)

// serveWithoutLease is the same service as most are written: a request with a key of its own,
// then a statement, and an ack after it; what fails is tried again with growing pauses.
func serveWithoutLease(ctx context.Context, db *sql.DB, orders message.Subscriber, provider *client) error {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(wmiddleware.Retry{MaxRetries: 10, InitialInterval: 100 * time.Millisecond, Multiplier: 2, MaxInterval: 2 * time.Second}.Middleware)
	router.AddConsumerHandler("charge", topic, orders, func(msg *message.Message) error {
		var o order
		if err := json.Unmarshal(msg.Payload, &o); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(msg.Context(), handlerTimeout)
		defer cancel()
		receipt, err := provider.charge(ctx, uuid.NewString(), o)
		if err != nil {
			return err
		}
		provider.announce(beforeCommit)
		_, err = db.ExecContext(ctx, insertPayment, o.OrderID, o.Cents, receipt)
		provider.announce(afterCommit)
		return err
	})
	return router.Run(ctx)
}
