// Package mysql is the store on MySQL 8 and 9 and on MariaDB 10.6 and later, on
// go-sql-driver/mysql.
//
// # Usage
//
// There are two ways in. With connections of the store's own:
//
//	store, err := mysql.Open(ctx, "mysql://billing:secret@db/billing")
//
// or OpenDB, with the driver's configuration. And on a *sql.DB of the program's:
//
//	store, err := mysql.New(db, mysql.Config{})
//
// A handler gets the transaction as its parameter from [Handler], or from the message's
// context by [TxFromContext]. It is a *sql.Tx of database/sql. The program does its own
// work outside of handlers through [Store.DB].
//
// # URL
//
// mysql://user:password@host:3306/database. Parameters are those of go-sql-driver's DSN,
// with system variables of the session among them, but for multiStatements and
// autocommit. Three are millpond's: max_open_conns, millpond_prefix and millpond_schema,
// the fields of Config.
//
// # What a message costs
//
//	                    the handler alone            with the inbox
//	Open, OpenDB        BEGIN, its statements,       claim, its statements,
//	                    COMMIT                       completion and COMMIT
//	New                 the same                     BEGIN, claim, its statements,
//	                                                 completion and COMMIT, an empty COMMIT
//
// Each item is one round trip. So OpenDB's connections cost none more and New's two more;
// both commit once. A duplicate takes two on connections of the store's own, and Look one.
// A message on MySQL takes one more (and on New's connections nine) where the stored
// procedures are missing that Migrate creates: see [Store.Procedures].
//
// A statement of a handler's with parameters is prepared, run and closed by database/sql
// each time, in two trips. On connections of the store's own to MariaDB the 32 that were
// sent last stay prepared, for arguments of the same types, so that one sent again takes
// one trip, and what begins and ends an attempt is prepared too; the server's
// max_prepared_stmt_count must allow for them. MySQL keeps in a statement what earlier
// values made it take the parameters for, so there each is prepared anew. With
// interpolateParams=true handlers' statements are not prepared at all, and where the
// server prepares none of ours, they are sent as text.
//
// The connections of the store's own have autocommit off for good. Their transactions
// begin with the first statement, which is the claim, so no BEGIN is sent. The completion
// and COMMIT have to be conditional on each other, and one statement to the server, or
// they would be two trips: on MariaDB that is a compound statement, on MySQL a procedure.
// Several statements in one text would do as well, but a connection that accepts them
// accepts them from handlers too, where they turn any injection into whatever its author
// likes; so that stays off, and no proxy or encryption of the connection matters. On
// connections of a caller's the same statements also switch autocommit off and on again.
//
// # Proof
//
// A claim is inserted as processing, and completed by an update that must change exactly
// the row with this claim's token before COMMIT is reached. With autocommit off, what a
// handler writes after its transaction has ended, by a deadlock whose error it hid or by
// DDL, belongs to another transaction, which is rolled back because the claim is not its
// own. Such an attempt has failed, with stores.ErrTxEnded or stores.ErrTxAborted.
//
// Nothing on these servers refuses a COMMIT inside of a handler, nor what commits
// implicitly. On connections of the store's own statements are looked at before they are
// sent: COMMIT, ROLLBACK, BEGIN, DDL and their like return stores.ErrTxManaged, and so do
// Commit and Rollback of the *sql.Tx. What hides in a procedure or in EXECUTE is noticed
// afterwards, as everything is on connections of a caller's: if all went well the message
// is complete all the same; otherwise it goes to quarantine, and does not run again. If
// the process dies in between, the row stays in processing, later deliveries wait until
// the bound of the claim has passed, and then go to quarantine as a conflict.
//
// Several statements in one text, which the program may have switched on for its own
// *sql.DB, are as unwatched as the rest there.
//
// # Isolation and locking
//
// Transactions are READ COMMITTED whatever the server's default, unless Config.Isolation
// says otherwise. The claim is a plain insert, decided by the primary key. It does not
// wait for another delivery of the key: MariaDB is told not to wait with the statement
// itself; MySQL has no such setting, so the insert looks first whether the row is locked
// (NOWAIT). Two first deliveries of one key within the same instant may both find nothing
// there; on MySQL one of them then waits for the other, or for innodb_lock_wait_timeout.
// At REPEATABLE READ that look takes a trip of its own on MySQL, before the claim.
// Deadlocks among claims are answered as in flight and never reach a handler.
//
// Recording a failure, a takeover, a retry worker's reservation and an operator's change
// are short transactions, which lock the failure's row first and pass by what is locked.
// There is no stores.Waker: retry workers poll.
//
// All text that is compared is stored as bytes, so that no collation takes two ids for
// one. Times are microseconds since 1970 in UTC by the server's clock.
//
// A handler that changes its session (SET, USE, temporary tables, procedures) has the
// connection closed after the attempt if it is one of the store's own. On a *sql.DB of
// the caller's the session stays changed, as it does without an inbox.
//
// # Capabilities
//
// ServerBound: sessions have idle_transaction_timeout and max_statement_time (MariaDB), or
// wait_timeout and max_execution_time (MySQL), so that the server frees the key of a
// process that stands still. They are in whole seconds, rounded up. Those of the store's
// own connections are set once; on MySQL they also close connections that are idle for as
// long, which costs a new one. MySQL bounds no statement but SELECT: another one that runs
// for long, or waits for a lock, is bounded by innodb_lock_wait_timeout alone.
//
// # At start
//
// The store logs a warning, by name and number, if innodb_flush_log_at_trx_commit is not 1
// or, with a binary log, sync_binlog is not 1; if sql_mode is not strict; if
// max_allowed_packet is too small for the largest messages to be kept; if the pool may open
// more connections than max_connections; and if procedures
// are missing. A server that is too old is an error, and so is one that only speaks the
// protocol, such as TiDB: it is known by its version and version_comment. What cannot be
// asked is not warned of.
//
// # Connections
//
// Whoever waits for a connection in vain is told that all are in use, with stores.ErrBusy.
// An attempt that is refused one by a server that is full waits for one of those that its
// pool has, in turn: others work, so the server is not away.
//
// # Limits
//
// A message that is kept, with its metadata, must fit max_allowed_packet less 64 KiB, and
// 256 MiB. On connections of a caller's the errors that a handler was told are known only
// if [Handler] is used and returns them. Without it a deadlock counts as a failed attempt,
// and a handler that rolls back by SQL, commits something else by SQL and then fails runs
// again. Connections must have autocommit on, and a character set in which text can be
// escaped (not big5, cp932, gb18030, gbk or sjis), completion_type NO_CHAIN, and no
// EMPTY_STRING_IS_NULL in their sql_mode: others are refused. The servers commit DDL at
// once: Migrate can be interrupted between two statements, and goes on where it was. The
// tables are InnoDB's, and effects must be, too: other engines have no transactions.
package mysql
