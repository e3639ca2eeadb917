// Package sqldb is the store on PostgreSQL for programs that use database/sql, or bun,
// gorm, ent, sqlx or sqlc on it: the transaction that holds the claim is a *sql.Tx. It
// uses the tables of package postgres; programs may share them, one using the one
// package and one the other.
//
// # Two ways in
//
// With a connector of ours, from a URL or from a pgx.ConnConfig:
//
//	db, err := sqldb.OpenDB("postgres://billing@db/billing")
//	store, err := sqldb.New(db, sqldb.Config{})
//
// or with a *sql.DB that the program has anyway, over any driver:
//
//	db, err := sql.Open("postgres", "postgres://billing@db/billing")
//	store, err := sqldb.New(db, sqldb.Config{})
//
// What they cost and promise:
//
//	                                    connector        the caller's *sql.DB
//	trips more than the handler alone   0                1: the claim
//	trips of a duplicate                2                4
//	commits more                        0                0
//	Commit and Rollback by the handler  ErrTxManaged     cannot be refused
//	SQL that ends the transaction       ErrTxManaged     cannot be refused
//	commit proven                       yes              only with ProveCommit: 1 trip more
//	a statement left running            is cut           is waited for
//	database failures told apart        yes              if Handler is used
//	session changed by the handler      connection closed stays for others
//	retry workers woken by NOTIFY       yes              no, they poll
//
// On a connection of ours BEGIN takes the claim along, and COMMIT the proof where it
// needs one. Every statement of the handler is seen, so that honest mistakes are
// refused, as they are by package postgres.
//
// # What the caller's *sql.DB cannot prove
//
// database/sql hides from the store what a handler sends, and whose transaction a
// COMMIT has ended. A handler that has called Commit or Rollback, or sent them as
// SQL and gone on without a transaction, is found out: its message goes to quarantine
// where something of it may be committed. A handler that has ended the
// transaction by SQL and begun another one is not, unless ProveCommit asks the server
// before each COMMIT; stores.Capabilities.CommitUnproven says so. Nor, in either case, is
// one whose other transaction has failed in the end: what it has committed before that
// is done again when its message is tried again. With a driver that is
// neither pgx nor lib/pq, and without ProveCommit, the driver's own word is all there
// is: one that sends COMMIT without looking lets a transaction that SQL has ended pass
// as committed. Handlers that leave their transaction's end to millpond are as safe one
// way as the other.
//
// # URL
//
// The schemes are postgres+sql:// and postgresql+sql://, since postgres:// opens package
// postgres; Open and OpenDB take all of them. Parameters are those of package
// postgres, pool_max_conns and pgbouncer among them.
//
// # Poolers
//
// Nothing depends on the session, so PgBouncer in transaction mode works. With a
// connector of ours add pgbouncer=transaction to the URL. With the caller's *sql.DB the
// driver must not prepare statements that outlive a transaction: for pgx that is
// default_query_exec_mode=cache_describe, exec or simple_protocol, and for lib/pq
// binary_parameters=yes. Handlers must not prepare any behind a pooler either.
//
// # Limits
//
// Those of package postgres. lib/pq cannot take part in what it hides: it reports a
// connection that the server has ended as driver.ErrBadConn, so a commit that the
// server's bound has prevented is unknown at first, and then found out.
//
// On a *sql.DB of the caller's an attempt whose handler has left a statement running ends
// with stores.ErrTxBusy when the context of its commit does, and its connection is closed
// as soon as the driver lets go of it. A COMMIT that is not answered in time is unknown; it
// is not cancelled, and keeps its connection until the server answers or TCP gives up.
package sqldb
