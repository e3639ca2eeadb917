// Package sqlite is the embedded store: one SQLite file, no server, no cgo.
//
//	store, err := sqlite.New(ctx, "/var/lib/billing/billing.db", sqlite.Config{})
//
// or from a URL, which also creates the tables:
//
//	store, err := sqlite.Open(ctx, "sqlite:///var/lib/billing/billing.db")
//
// The handler's tables are in the same file. A handler gets the transaction, a *sql.Tx, as its
// parameter from [Handler], or with [TxFromContext]. Its Commit and Rollback belong to millpond:
// see stores.ErrTxManaged. The program reads, and sets up its tables, through [Store.DB]. Handlers
// can use functions, collations and modules that the program registered with modernc.org/sqlite.
//
// # URL
//
// sqlite:///absolute/path.db and sqlite://relative/path.db name the file. Special characters are
// percent-encoded: %3F for ?, %23 for #. Memory databases are refused. Parameters, each at most
// once:
//
//	migrate=auto|never        create and update the tables when opening (auto)
//	prefix=millpond_          Config.TablePrefix
//	busy_timeout=5s           Config.BusyTimeout
//	synchronous=full|normal   Config.Synchronous (full)
//
// # What it guarantees
//
// SQLite has one writer (stores.Capabilities.SingleWriter), so transactions are serializable and
// run one after another. Looks use separate connections and never wait. The connection vetoes every
// commit but the store's. If another process writes for longer than Config.BusyTimeout, the error
// wraps stores.ErrUnavailable. No server ends the transaction of a paused process (ServerBound is
// false); if the process dies, its transaction ends at once.
//
// The file must be on a local disk, and handlers must not change millpond's tables. A quarantined
// message has at most 1 GB less 64 KiB.
//
// docs/store-internals.md has the limits, and how locks, hooks and failed messages work.
package sqlite
