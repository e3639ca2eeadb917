package tables

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Config names the tables. The zero value is ready to use.
type Config struct {
	Schema      string
	TablePrefix string
	Isolation   pgx.TxIsoLevel // of handlers' transactions; "": read committed
	AnyServer   bool           // accept unknown servers, and relatives
}

// Tables is what a store knows about its tables. It is safe for concurrent use.
type Tables struct {
	shared     *sqlstore.Tables
	db         DB
	names      sqlstore.Names
	isolation  pgx.TxIsoLevel // of handlers' transactions
	recognised atomic.Bool    // the server was recognized and accepted
	anyServer  bool
	log        *slog.Logger
	writers    openWriters
	looks      sync.Map     // *looks, by consumer
	woken      atomic.Int64 // the last wake-up of listeners, in nanoseconds since started
	learnt
}

// learnt is the result of learn. Except for the settings it does not change once there is a
// consumer or the tables are ready.
type learnt struct {
	learning   sync.Mutex
	dialect    *sqlstore.Dialect // nil before learn
	sql        statements
	lockPrefix []byte // the prefix of what LockKey hashes
	channel    string // the channel of notifications
	settings   atomic.Pointer[serverSettings]
}

// Store is the part of the contract that does not depend on the driver. Stores embed it.
type Store struct {
	sqlstore.Store

	t *Tables
}

// Format implements fmt.Formatter. No verb prints the connection's settings, which contain a
// password.
func (s Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "a store on PostgreSQL") }

// Store returns the contract's methods, without the methods for drivers.
func (t *Tables) Store() Store { return Store{t.shared.Store(), t} }

// New returns the tables that c names, without I/O. Errors name the field.
func New(db DB, c Config) (*Tables, error) {
	names, err := sqlstore.NewNames(c.Schema, c.TablePrefix)
	if err != nil {
		return nil, err
	}
	t := &Tables{db: db, names: names, isolation: cmp.Or(c.Isolation, pgx.ReadCommitted), anyServer: c.AnyServer, log: slog.Default()}
	t.shared = sqlstore.New("postgres", database{t}, loadMigrations(names))
	return t, nil
}

// Close refuses further calls. It reports whether it was the first Close.
func (t *Tables) Close() bool { return t.shared.Close() }

// TxOptions are the options of handlers' transactions, for a store with a registered consumer. They
// leave out the server's defaults, and any access mode: a read-only server stays read-only.
func (t *Tables) TxOptions() pgx.TxOptions {
	if t.settings.Load().isolation == t.isolation {
		return pgx.TxOptions{}
	}
	return pgx.TxOptions{IsoLevel: t.isolation}
}

// BeginText is BEGIN with TxOptions.
func (t *Tables) BeginText() string {
	if level := t.TxOptions().IsoLevel; level != "" {
		return "begin isolation level " + string(level)
	}
	return "begin"
}

// Emit writes outputs in a transaction; see sqlstore.Tables.Emit.
func (t *Tables) Emit(ctx context.Context, tx Querier, outputs []stores.Output, locked bool) error {
	return t.shared.Emit(ctx, tx, outputs, locked)
}

// Stage is Emit for an attempt; see sqlstore.Tables.Stage.
func (t *Tables) Stage(s *sqlstore.Staged, outputs []stores.Output) error {
	return t.shared.Stage(s, outputs)
}

// Known returns the number of a key's consumer if the call is allowed.
func (t *Tables) Known(k stores.Key) (int64, error) { return t.shared.Known(k) }
