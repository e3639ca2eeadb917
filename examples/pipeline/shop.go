package main

// The shop. It takes orders over HTTP, and tells the stock of each.

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

const shopSchema = `CREATE TABLE placed (number INTEGER PRIMARY KEY, article TEXT NOT NULL, quantity INTEGER NOT NULL) STRICT`

// order is what a customer sends, and what the services tell each other.
type order struct {
	Number   int64  `json:"number"` // the customer's: who got no answer asks again with the same
	Article  string `json:"article"`
	Quantity int64  `json:"quantity"`
}

// shop takes orders.
type shop struct {
	store   *sqlite.Store
	relay   *outbox.Relay
	topics  topics
	reached func(point string)

	direct message.Publisher // without the outbox
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.place(r.Context(), o); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// place writes an order and the message about it in one transaction.
func (s *shop) place(ctx context.Context, o order) error {
	tx, err := s.store.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	result, err := tx.ExecContext(ctx, `INSERT INTO placed (number, article, quantity) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, o.Number, o.Article, o.Quantity)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n == 0 {
		return err // it was placed before, and its answer was lost
	}
	msg, err := o.message()
	if err != nil {
		return err
	}
	if s.direct == nil {
		err = sqlite.NewPublisher(tx, s.store, stores.PublisherConfig{Destination: toStock}).Publish(s.topics.orders, msg)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return err
	}
	s.reached("shop: committed")
	if s.direct != nil {
		return s.direct.Publish(s.topics.orders, msg)
	}
	s.relay.Poke()
	return nil
}

func (o order) message() (*message.Message, error) {
	payload, err := json.Marshal(o)
	return message.NewMessage(watermill.NewUUID(), payload), err
}
