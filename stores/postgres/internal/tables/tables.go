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
	Isolation   pgx.TxIsoLevel // of the handlers' transactions; "": read committed
}

// Tables is what a store knows of its tables. It is safe for concurrent use.
type Tables struct {
	db         DB
	names      sqlstore.Names
	migrations []stores.Migration
	closed     atomic.Bool
	recognised atomic.Bool // what the server is, and that it will do
	log        *slog.Logger

	mu        sync.RWMutex
	consumers map[stores.Consumer]int32
	checked   bool // by ready

	woken atomic.Int64 // when listeners were woken last, in nanoseconds since started

	// Set by learn, and constant once there is a consumer or ready has returned nil.
	learning   sync.Mutex
	learnt     bool
	sql        statements
	txOptions  pgx.TxOptions
	qualified  sqlstore.Names
	lockPrefix []byte // of what LockKey hashes
	channel    string // of notifications
	limits     serverLimits
}

// Store is the part of the contract that does not depend on the driver. Stores embed it.
type Store struct{ t *Tables }

// Format implements fmt.Formatter: no verb prints the connection's settings, which have a
// password.
func (s Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "a store on PostgreSQL") }

// Store returns the contract's methods, without what Tables offers to drivers beside.
func (t *Tables) Store() Store { return Store{t} }

// New returns the tables that c names, without I/O. Errors name the field.
func New(db DB, c Config) (*Tables, error) {
	if c.TablePrefix == "" {
		c.TablePrefix = sqlstore.DefaultPrefix
	}
	names := sqlstore.Names{Schema: c.Schema, Prefix: c.TablePrefix}
	if err := names.Validate(); err != nil {
		return nil, fmt.Errorf("Config.%w", err)
	}
	return &Tables{
		db:         db,
		names:      names,
		migrations: loadMigrations(names),
		txOptions:  pgx.TxOptions{IsoLevel: cmp.Or(c.Isolation, pgx.ReadCommitted)}, // no access mode: a server set to read-only means it
		consumers:  make(map[stores.Consumer]int32),
		log:        slog.Default(),
	}, nil
}

// Close lets no more calls begin. It reports whether it was the first time.
func (t *Tables) Close() bool { return !t.closed.Swap(true) }

// TxOptions are those of the handlers' transactions, for a store with a registered
// consumer. What the server does anyway is not said.
func (t *Tables) TxOptions() pgx.TxOptions { return t.txOptions }

// forget drops what is known of the tables.
func (t *Tables) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.consumers)
	t.checked = false
}

// ready makes sure, once, that the tables are there and fit this program, for calls
// that need no registered consumer.
func (t *Tables) ready(ctx context.Context) error {
	if t.closed.Load() {
		return stores.ErrClosed
	}
	t.mu.RLock()
	checked := t.checked
	t.mu.RUnlock()
	if checked {
		return nil
	}
	if err := t.Store().Validate(ctx); err != nil {
		return err
	}
	if err := t.learn(ctx); err != nil {
		return unavailable(err)
	}
	t.mu.Lock()
	t.checked = true
	t.mu.Unlock()
	return nil
}

// consumerID returns the registered id of a consumer.
func (t *Tables) consumerID(c stores.Consumer) (int32, error) {
	t.mu.RLock()
	id, ok := t.consumers[c]
	t.mu.RUnlock()
	if !ok {
		return 0, fmt.Errorf("postgres: %w: %s", stores.ErrNotRegistered, c)
	}
	return id, nil
}

// Known returns the consumer of a key that a call may be made for.
func (t *Tables) Known(k stores.Key) (int32, error) {
	if t.closed.Load() {
		return 0, stores.ErrClosed
	}
	// A registered consumer is a valid one, so that only the id is left to look at.
	consumer, err := t.consumerID(k.Consumer)
	if n := len(k.ID); err != nil || n == 0 || n > stores.MaxIDBytes {
		return 0, cmp.Or(k.Validate(), err)
	}
	return consumer, nil
}
