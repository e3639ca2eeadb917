package sqldb

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/sqltx"
)

type attemptKey struct{}

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
	return sqltx.FromContext[*sql.Tx](ctx, attemptKey{})
}

// Handler adapts a function that wants the transaction to a handler for
// Router.AddConsumerHandler. It returns stores.ErrNoTx without an inbox on a store of
// this package around it, and stores.ErrReentered when it is run twice in one attempt.
func Handler(f func(ctx context.Context, tx *sql.Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	handle := sqltx.Handler(attemptKey{}, f)
	return func(msg *message.Message) error { return handle(msg) } // router looks at the file of this function
}

// Lease makes a handler of an effect outside of the database, and of what is written when it
// has happened, in the transaction that completes the message. That is done again while it
// fails and the lease lives, and the effect is not; its result is what write gets. It is for
// handlers of InboxConfig.LeaseByHandler, and returns stores.ErrNoLease before the effect for
// others. An inbox that is not on a store of this package completes nothing.
func Lease[R any](
	effect func(ctx context.Context, msg *message.Message) (R, error),
	write func(ctx context.Context, tx *sql.Tx, msg *message.Message, result R) error,
) message.NoPublishHandlerFunc {
	handle := sqltx.Lease(attemptKey{}, effect, write)
	return func(msg *message.Message) error { return handle(msg) } // router looks at the file of this function
}
