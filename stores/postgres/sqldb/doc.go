// Package sqldb is the store on PostgreSQL for programs that use database/sql, or bun,
// gorm, ent, sqlx or sqlc on it: the transaction that holds the claim is a *sql.Tx. It
// uses the tables of package postgres; programs may share them, one using the one
// package and one the other.
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
// A handler gets the transaction as its parameter from [Handler], or from the message's
// context by [TxFromContext].
//
// # URL
//
// The schemes are postgres+sql:// and postgresql+sql://, since postgres:// opens package
// postgres; [Open] and [OpenDB] take all of them. Parameters are those of package
// postgres, pool_max_conns and pgbouncer among them.
//
// # What it guarantees
//
// On a connection of ours everything that package postgres does: BEGIN takes the claim
// along, each statement of the handler is seen, and Commit, Rollback and SQL that ends the
// transaction return stores.ErrTxManaged.
//
// On the caller's *sql.DB the claim is a round trip more, and what ends the transaction is
// noticed instead of refused. A handler that ends it in SQL and begins another one goes
// unnoticed unless Config.ProveCommit is set; stores.Capabilities.CommitUnproven says so.
// Use [Handler] there, so that the database's failures are told from the handler's.
//
// docs/stores.md compares both ways, with costs and poolers; docs/store-internals.md has
// what a *sql.DB of the caller's cannot prove.
package sqldb
