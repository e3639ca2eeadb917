// Package sqlite is the embedded store: one SQLite file, no server, no cgo.
//
// # Usage
//
// From Go:
//
//	store, err := sqlite.New(ctx, "/var/lib/billing/billing.db", sqlite.Config{})
//
// or from a URL, which also creates the tables:
//
//	store, err := sqlite.Open(ctx, "sqlite:///var/lib/billing/billing.db")
//
// The handler's tables are in the same file. A handler gets the transaction as its
// parameter from [Handler], or from the message's context by [TxFromContext]. It is a
// *sql.Tx of database/sql whose Commit and Rollback belong to millpond: see
// stores.ErrTxManaged. The program reads, and prepares its tables, through [Store.DB].
//
// Functions, collations and modules that the program has registered with
// modernc.org/sqlite can be used in handlers.
//
// # URL
//
// sqlite:///absolute/path.db and sqlite://relative/path.db name the file. Special
// characters are percent-encoded: %3F for ?, %23 for #. Memory databases are refused.
// Parameters, each at most once:
//
//	migrate=auto|never        create and update the tables when opening (auto)
//	prefix=millpond_          Config.TablePrefix
//	busy_timeout=5s           Config.BusyTimeout
//	synchronous=full|normal   Config.Synchronous (full)
//
// # Schema
//
// Tables are created by Migrate or by the SQL of Migrations; of their own only by URLs
// and Config.AutoMigrate. They are STRICT, ids are BLOBs and compared byte by byte, and
// times are integers, microseconds since 1970 UTC. A completed message costs one entry
// of one B-tree. Its completed_at is the time of its claim, which is the first statement
// of the transaction that completes it. A message that has failed has a second row, in a
// table of its own, until it is completed.
//
// # Isolation and locking
//
// SQLite has one writer. The store has one connection that writes, and every transaction
// on it begins with BEGIN IMMEDIATE, so it is serializable and never fails half-way for
// a lock. Deliveries of different keys queue for it in order; a delivery of a key that
// is in flight in this process is answered at once, and completed ones are found without
// it if it stays taken. Other processes may use the file: while one of them writes, the
// others ask again until Config.BusyTimeout has passed, and then report
// stores.ErrUnavailable. Looks use connections of their own, which cannot write; in WAL
// mode they wait for nobody.
//
// The connection refuses every commit but the store's, by SQLite's commit hook, and a
// rollback hook tells when the transaction has ended early. COMMIT and ROLLBACK in SQL,
// INSERT OR ROLLBACK, a write interrupted by its context: each ends with nothing
// committed and stores.ErrTxEnded, and so does everything written afterwards. Rows left
// open, and a statement that still runs in a goroutine left behind, end with
// stores.ErrTxBusy; the statement is interrupted. So is any that still runs when
// Claim.Bound has passed since the claim, also one that was sent without a context.
// Savepoints and DDL are fine. PRAGMA, ATTACH and temporary tables are taken back by
// closing the connection after the attempt, which costs a few hundred microseconds.
//
// # Failed messages
//
// Record, Due, Release, Change and Decide are short transactions of the writer, and queue
// for it like claims, bounded by their contexts. They do not wait for a handler of the
// message that they concern: Record returns stores.ErrChanged then, Due and Release pass it
// by, Change counts it as busy. Which handlers run is known of this process only; while
// one of another process runs the error wraps stores.ErrUnavailable after
// Config.BusyTimeout. Due and Change take the writer only if there is something to do, so
// that polling costs readers alone; there is no stores.Waker. Change counts a claim that
// queues for the writer as busy too, and leaves messages alone that an operator has
// retried and that nothing has happened to since.
//
// # Capabilities
//
// SingleWriter. Not ServerBound: there is no server that could end the transaction of a
// process that stands still, so while it does, nobody can write to the file. When the
// process dies its transaction is gone at once.
//
// # Limits
//
// The file belongs on a local disk: WAL does not work over a network file system. With
// Config.Synchronous Normal, the last commits can be lost with the machine. A quarantined
// message has at most 1 GB less 64 KiB. COMMIT runs in the process and cannot be
// interrupted: a context bounds the waiting before it. A handler that attaches another
// database writes to that one without any promise: SQLite in WAL mode commits each file
// apart. Handlers must not change millpond's own tables.
//
// Two things cannot be interrupted, and keep the writer until they end by themselves: a
// function of the program's that SQLite has called, and the search for the next row of a
// query that has returned its first one.
//
// A file that is unlinked or replaced under a running program goes on being used until
// Close, and what was committed there is gone with it.
package sqlite
