// Package postgres is the store on PostgreSQL, on pgx v5.
//
// # Usage
//
// With a pool of the program's own:
//
//	store, err := postgres.New(pool, postgres.Config{})
//
// or from a URL, with a pool that Close closes:
//
//	store, err := postgres.Open(ctx, "postgres://billing@db/billing")
//
// Programs that use database/sql take package sqldb instead, on the same tables.
//
// A handler gets the transaction as its parameter from [Handler], or from the
// message's context by [TxFromContext]. It is a pgx.Tx whose Commit and Rollback
// belong to millpond: see stores.ErrTxManaged.
//
// # URL
//
// postgres:// and postgresql:// URLs are pgx's, with its parameters and
// environment variables (PGPASSWORD and so on). Three parameters are millpond's:
// millpond_schema and millpond_prefix, the names of Config, and pgbouncer=transaction
// (see Poolers).
//
// # Poolers
//
// The store uses no state of the session, so PgBouncer in transaction mode works, if pgx
// prepares no statements that outlive a transaction. pgbouncer=transaction in the URL
// sees to that: it sets default_query_exec_mode to cache_describe, unless the URL has
// exec or simple_protocol. New takes a pool as it is: set
// DefaultQueryExecMode before it is made. A pooler that keeps track of prepared
// statements needs nothing of this. Notifications do not pass in transaction mode, so
// that retry workers poll, and what a handler sets in its session stays for others
// (stores.Capabilities.SessionShared).
//
// # Schema
//
// Tables are created by Migrate or by the SQL of Migrations, never on their own.
// The schema in which they are found first is used from then on, whatever handlers do
// to the search_path; temporary tables are passed over. Functions, operators and types in
// the store's statements are those of pg_catalog by name, so that nothing which somebody
// has created in a schema of the path is run by them. A completed message costs one row and its primary key.
//
// # Isolation and locking
//
// The transaction is READ COMMITTED, whatever the server's default, unless
// Config.Isolation says otherwise. The claim is its first statement, sent together
// with BEGIN: an insert that only happens if the key's advisory lock (transaction
// scoped, try only) is free. A first delivery therefore costs the round trips of
// BEGIN, the handler's statements and COMMIT, and nobody waits for a lock of
// millpond. The advisory locks use 64-bit keys that are hashes of the table name,
// consumer and id; a program that takes the same key makes a message wait, nothing
// else.
//
// # Failed messages
//
// A message that has failed has a row in the failure table beside its row in the
// inbox; a takeover deletes the one and completes the other. Whatever changes them
// needs the key's lock and the failure's row, and takes neither that it cannot have
// at once: recording a failure, a takeover, a retry worker's reservation and an
// operator's change never wait for a handler, nor for each other. Retry workers are
// woken by NOTIFY on a channel of the tables' own (see Store.Listen), at most some
// times a second, because commits that notify are serialized.
//
// # Capabilities
//
// ServerBound: idle_in_transaction_session_timeout and statement_timeout are set
// for the transaction (never above what the connection has), so that the server
// frees the key of a process that stands still. Where the role or the connection has
// both already, and no longer than the bound (HandlerTimeout + CommitTimeout of the
// inbox), nothing is set, which saves the server some work with each message:
//
//	postgres://billing@db/billing?idle_in_transaction_session_timeout=40s&statement_timeout=40s
//
// Not SessionShared: a connection whose session a handler's SQL may have changed, or
// that was handed out by Conn, is closed after the attempt. Settings of the transaction
// (SET LOCAL) cost nothing.
//
// Two cases escape both timeouts: a stopped process to which the server is sending a
// large result, and one in the middle of COPY FROM STDIN. tcp_user_timeout ends the
// first; an operator must end the other.
//
// # Limits
//
// A commit is as durable as the server makes it: with synchronous_commit=off, or
// after a failover to an asynchronous standby, a committed message can be gone
// although it was acked. A handler that reaches around its transaction through
// tx.Conn() can commit it; that is noticed, and the message put into quarantine.
package postgres
