package sqldb

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/sqltx"
)

type attemptKey struct{}

// TxFromContext returns the transaction that holds the claim, from the context of the handler's
// message. It reports false outside an inbox on a store of this package.
//
// Use the transaction like any *sql.Tx, but millpond ends it. With a connector of this package
// (Open, OpenDB, NewConnector) Commit, Rollback and SQL that would end it return
// stores.ErrTxManaged, and the attempt then cannot be committed. On any other *sql.DB they cannot
// be refused: the attempt fails afterwards, and the message goes to quarantine if effects were
// committed. After the handler has returned, the transaction's methods return sql.ErrTxDone.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	return sqltx.FromContext[*sql.Tx](ctx, attemptKey{})
}

// Handler adapts a function that takes the transaction to a handler for Router.AddConsumerHandler.
// The handler returns stores.ErrNoTx outside an inbox on a store of this package, and
// stores.ErrReentered when it runs twice in one attempt.
func Handler(f func(ctx context.Context, tx *sql.Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	handle := sqltx.Handler(attemptKey{}, f)
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}

// Lease makes a handler of two functions: effect runs first, outside the database; write runs in
// the transaction that completes the message, with effect's result. If the completion fails, write
// is repeated while the lease lives; effect is not. Use it for handlers in
// InboxConfig.LeaseByHandler: without a lease it returns stores.ErrNoLease before the effect. With
// an inbox on another store, nothing is completed.
func Lease[R any](
	effect func(ctx context.Context, msg *message.Message) (R, error),
	write func(ctx context.Context, tx *sql.Tx, msg *message.Message, result R) error,
) message.NoPublishHandlerFunc {
	handle := sqltx.Lease(attemptKey{}, effect, write)
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}
