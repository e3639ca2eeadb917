package main

// The service. This file is what you would write; nothing in it knows the broker. On DynamoDB the
// handler is that of dynamodb.go.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	_ "github.com/millpond-go/millpond/brokers/amqp" // the brokers that the file may name
	_ "github.com/millpond-go/millpond/brokers/amqp/official"
	_ "github.com/millpond-go/millpond/brokers/kafka"
	_ "github.com/millpond-go/millpond/brokers/kafka/official"
	_ "github.com/millpond-go/millpond/brokers/memory"
	_ "github.com/millpond-go/millpond/brokers/nats"
	_ "github.com/millpond-go/millpond/brokers/sqs"
	_ "github.com/millpond-go/millpond/brokers/sqs/official"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
)

// schema is the service's own. The reservations have no unique key on purpose, so that an
// order that is reserved twice shows.
const schema = `
CREATE TABLE stock       (article TEXT PRIMARY KEY, quantity INTEGER NOT NULL);
CREATE TABLE reservation (order_id TEXT NOT NULL, article TEXT NOT NULL, quantity INTEGER NOT NULL);`

// newWarehouse makes the service of its configuration.
func newWarehouse(ctx context.Context, config router.Config, orders string, w *warehouse) (*router.Service, database, error) {
	svc, err := router.New(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	in, err := databaseOf(svc.Store(), config.Store.URL)
	if err != nil {
		return nil, nil, errors.Join(err, svc.Close())
	}
	svc.Handle("reserve", orders, in.handler(w)) // sqlite.Handler(w.reserve), or that of dynamodb.go
	return svc, in, nil
}

// order is what the shop sends.
type order struct {
	ID       string `json:"id"`
	Article  string `json:"article"`
	Quantity int64  `json:"quantity"`
}

// warehouse reserves what is ordered.
type warehouse struct{ shelves *shelves }

// reserve is the handler. What it writes through tx is committed together with the proof
// that this order is done, or not at all.
func (w *warehouse) reserve(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	o, err := w.find(msg)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE stock SET quantity = quantity - ? WHERE article = ?`, o.Quantity, o.Article); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO reservation (order_id, article, quantity) VALUES (?, ?, ?)`, o.ID, o.Article, o.Quantity)
	return err
}

// find reads an order, and looks for its article.
func (w *warehouse) find(msg *message.Message) (o order, err error) {
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return o, middleware.Permanent(fmt.Errorf("not an order: %w", err)) // no attempt will succeed
	}
	return o, w.shelves.find(o) // the next attempt may succeed
}
