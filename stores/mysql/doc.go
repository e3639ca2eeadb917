// Package mysql is the store on MySQL 8 and 9 and on MariaDB 10.6 and later, on
// go-sql-driver/mysql. TiDB 8.4 and later is a preview, on the store's own connections:
// docs/stores.md.
//
// With connections of the store's own, from a URL, or with [OpenDB] from the driver's
// configuration:
//
//	store, err := mysql.Open(ctx, "mysql://billing:secret@db/billing")
//
// Or on the program's *sql.DB, which costs two more round trips per message and prevents less:
//
//	store, err := mysql.New(db, mysql.Config{})
//
// A handler gets the transaction, a *sql.Tx, as its parameter from [Handler], or with
// [TxFromContext]. Its Commit and Rollback belong to millpond: see stores.ErrTxManaged. Outside
// handlers use [Store.DB].
//
// # URL
//
// mysql://user:password@host:3306/database. Parameters are those of go-sql-driver's DSN and system
// variables of the session, except multiStatements and autocommit. Four set fields of [Config]:
// max_open_conns, millpond_prefix, millpond_schema, and millpond_server=any for AnyServer.
//
// # What it guarantees
//
// A commit is proven: COMMIT is reached only after the row with this claim's token was completed.
// Transactions are READ COMMITTED unless Config.Isolation says otherwise. Statements that commit,
// such as DDL, are refused on the store's own connections and noticed on a caller's. Ids are
// compared as bytes. Times are microseconds by the server's clock. There is no stores.Waker: retry
// workers poll.
//
// millpond's tables are InnoDB tables, and those of handlers must be. A kept message, with its
// metadata, must fit into 256 MiB and into max_allowed_packet less 64 KiB.
//
// docs/stores.md has what a message costs, what is checked at the start and what the operator must
// set. docs/store-internals.md has how claims, proof, locks and bounds work.
package mysql
