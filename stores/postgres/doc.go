// Package postgres is the store on PostgreSQL, on pgx v5.
//
// With the program's own pool:
//
//	store, err := postgres.New(pool, postgres.Config{})
//
// or from a URL, with a pool that Close closes:
//
//	store, err := postgres.Open(ctx, "postgres://billing@db/billing")
//
// Programs on database/sql use package sqldb instead, with the same tables.
//
// A handler gets the transaction, a pgx.Tx, as its parameter from [Handler], or with
// [TxFromContext]. Its Commit and Rollback belong to millpond: see stores.ErrTxManaged. A handler
// that only writes can queue its statements: [Queued].
//
// # URL
//
// postgres:// and postgresql:// URLs are pgx's, with its parameters and environment variables
// (PGPASSWORD and so on). Four parameters are millpond's: millpond_schema and millpond_prefix for
// the names in [Config], millpond_server=any for Config.AnyServer, and pgbouncer=transaction for a
// pooler in transaction mode.
//
// # What it guarantees
//
// Transactions are READ COMMITTED unless Config.Isolation says otherwise. A first delivery that is
// not suspect takes no more round trips and commits than the handler in BEGIN and COMMIT, and waits
// for no lock of millpond's. The server frees the key of a paused process
// (stores.Capabilities.ServerBound). A connection whose session a handler may have changed serves
// no other message. NOTIFY wakes retry workers: see [Store.Listen].
//
// A commit is as durable as the server makes it: with synchronous_commit=off, or after a failover
// to an asynchronous standby, a committed and acked message can be lost. A handler that commits
// through tx.Conn() is noticed, and its message quarantined.
//
// docs/stores.md has what a message costs and what the operator must set, for poolers too.
// docs/store-internals.md has how claims, locks and bounds work.
package postgres
