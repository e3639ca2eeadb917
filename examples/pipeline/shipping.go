package main

// The shipping. It sends a parcel for each shipment.

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/sqlite"
)

const shippingSchema = `CREATE TABLE parcel (number INTEGER NOT NULL, article TEXT NOT NULL, quantity INTEGER NOT NULL) STRICT`

// shipping ships.
type shipping struct {
	store   *sqlite.Store
	topics  topics
	reached func(point string)
}

// serve consumes shipments until there are none any more.
func (s *shipping) serve(ctx context.Context, shipments message.Subscriber) error {
	inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{Service: "shipping", Logger: quiet})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware)
	router.AddConsumerHandler("ship", s.topics.shipments, shipments, sqlite.Handler(s.ship))
	return router.Run(ctx)
}

func (s *shipping) ship(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return middleware.Permanent(err)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO parcel (number, article, quantity) VALUES (?, ?, ?)`, o.Number, o.Article, o.Quantity)
	s.reached("shipping: written")
	return err
}
