package sqldb

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// carrier is an attempt as handlers meet it.
type carrier interface {
	native() *sql.Tx
	enter() error
	returned(err error) // by the typed handler
}

type carrierKey struct{}

// TxFromContext returns the transaction that holds the claim, for use in a handler
// with the context of its message. It reports false if there is no inbox on a store of
// this package around the handler.
//
// The transaction is used like any *sql.Tx, but millpond ends it. On a connection of
// ours (Open, OpenDB, NewConnector) Commit and Rollback return stores.ErrTxManaged, as
// does SQL that would end it, and the attempt then cannot be committed. On a *sql.DB of
// the caller's they cannot be refused: the attempt has failed then, and a message of
// which something was committed goes to quarantine. After the handler has returned the
// transaction's methods return sql.ErrTxDone.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	c, ok := ctx.Value(carrierKey{}).(carrier)
	if !ok {
		return nil, false
	}
	return c.native(), true
}

// Handler adapts a function that wants the transaction to a handler for
// Router.AddConsumerHandler. It returns stores.ErrNoTx without an inbox on a store of
// this package around it, and stores.ErrReentered when it is run twice in one attempt.
func Handler(f func(ctx context.Context, tx *sql.Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		c, ok := msg.Context().Value(carrierKey{}).(carrier)
		if !ok {
			return stores.ErrNoTx
		}
		if err := c.enter(); err != nil {
			return err
		}
		err := f(msg.Context(), c.native(), msg)
		c.returned(err)
		return err
	}
}
