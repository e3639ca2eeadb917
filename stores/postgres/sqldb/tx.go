package sqldb

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/sqltx"
)

type attemptKey struct{}

// TxFromContext returns the transaction that holds the claim, for use in a handler with the
// context of its message. It reports false if there is no inbox on a store of this package around
// the handler.
//
// The transaction is used like any *sql.Tx, but millpond ends it. With a connector of this
// package (Open, OpenDB, NewConnector) Commit and Rollback return stores.ErrTxManaged, as does
// SQL that would end it, and the attempt then cannot be committed. On any other *sql.DB they
// cannot be refused: the attempt fails afterwards, and the message goes to quarantine if effects
// were committed. After the handler has returned the transaction's methods return sql.ErrTxDone.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	return sqltx.FromContext[*sql.Tx](ctx, attemptKey{})
}

// Handler adapts a function that wants the transaction to a handler for
// Router.AddConsumerHandler. It returns stores.ErrNoTx without an inbox on a store of
// this package around it, and stores.ErrReentered when it is run twice in one attempt.
func Handler(f func(ctx context.Context, tx *sql.Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	handle := sqltx.Handler(attemptKey{}, f)
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}

// Lease makes a handler of two functions: effect runs first, outside the database, and write runs
// in the transaction that completes the message, with the result of effect. If the completion
// fails it is tried again while the lease lives, with write but without effect. It is for
// handlers of InboxConfig.LeaseByHandler; without a lease it returns stores.ErrNoLease before the
// effect. An inbox on another store completes nothing.
func Lease[R any](
	effect func(ctx context.Context, msg *message.Message) (R, error),
	write func(ctx context.Context, tx *sql.Tx, msg *message.Message, result R) error,
) message.NoPublishHandlerFunc {
	handle := sqltx.Lease(attemptKey{}, effect, write)
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}
