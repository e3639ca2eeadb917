package main

// The stock. It reserves what was ordered, and tells the shipping.

import (
	"context"
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// The reservations have no unique key on purpose, so that an order that is reserved twice shows.
const stockSchema = `CREATE TABLE reserved (number INTEGER NOT NULL, article TEXT NOT NULL, quantity INTEGER NOT NULL) STRICT`

// stock reserves.
type stock struct {
	store   *sqlite.Store
	relay   *outbox.Relay
	topics  topics
	reached func(point string)

	direct message.Publisher // without the outbox
}

// serve consumes orders until there are none any more.
func (s *stock) serve(ctx context.Context, orders message.Subscriber) error {
	inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{Service: "stock", Logger: quiet, Outputs: &middleware.Outputs{Relay: s.relay}})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware)
	if s.direct != nil {
		router.AddConsumerHandler("reserve", s.topics.orders, orders, s.reserveAndPublish)
	} else {
		router.AddHandler("reserve", s.topics.orders, orders, s.topics.shipments, outbox.Publisher(toShipping), s.reserve)
	}
	return router.Run(ctx)
}

// reserve is the handler. What it writes and what it returns are committed together, with the
// proof that this order is done.
func (s *stock) reserve(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return nil, middleware.Permanent(err)
	}
	tx, ok := sqlite.TxFromContext(ctx)
	if !ok {
		return nil, stores.ErrNoTx
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO reserved (number, article, quantity) VALUES (?, ?, ?)`, o.Number, o.Article, o.Quantity); err != nil {
		return nil, err
	}
	s.reached("stock: written")
	shipment, err := o.message()
	return []*message.Message{shipment}, err
}

// reserveAndPublish is the same as most are written: the message is published before the
// transaction is committed, or else it could be lost.
func (s *stock) reserveAndPublish(msg *message.Message) error {
	shipments, err := s.reserve(msg)
	if err != nil {
		return err
	}
	return s.direct.Publish(s.topics.shipments, shipments...)
}
