// Package sqldb is the store on PostgreSQL for programs on database/sql, including bun, gorm,
// ent, sqlx and sqlc: the transaction that holds the claim is a *sql.Tx. Its tables are those of
// package postgres, and programs on either package may share them.
//
// With a connector of this package, from a URL or from a pgx.ConnConfig:
//
//	db, err := sqldb.OpenDB("postgres://billing@db/billing")
//	store, err := sqldb.New(db, sqldb.Config{})
//
// or with any *sql.DB of the program, over any driver:
//
//	db, err := sql.Open("postgres", "postgres://billing@db/billing")
//	store, err := sqldb.New(db, sqldb.Config{})
//
// A handler gets the transaction as its parameter from [Handler], or with [TxFromContext].
//
// # URL
//
// The schemes are postgres+sql:// and postgresql+sql://, because postgres:// opens package
// postgres; [Open] and [OpenDB] accept all of them. Parameters are those of package postgres, with
// pool_max_conns and pgbouncer.
//
// # What it guarantees
//
// With a connector of this package it guarantees the same as package postgres: BEGIN carries the
// claim, each statement of the handler is checked, and Commit, Rollback and SQL that ends the
// transaction return stores.ErrTxManaged.
//
// On any other *sql.DB the claim takes one more round trip, and a handler that ends the transaction
// is noticed, not refused. A handler that ends it in SQL and begins another one goes unnoticed
// unless Config.ProveCommit is set; stores.Capabilities.CommitUnproven says so. Use [Handler]
// there, so that failures of the database and of the handler can be told apart.
//
// docs/stores.md compares both ways, with costs and poolers. docs/store-internals.md says what such
// a *sql.DB cannot prove.
package sqldb
