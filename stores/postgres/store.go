package postgres

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// Schema holds millpond's tables; "" is the first of the connection's
	// search_path. It must exist.
	Schema string
	// TablePrefix begins the tables' names; "" means "millpond_".
	TablePrefix string
	// Isolation of the handlers' transactions; "" means read committed. With a
	// higher level a claim may fail with a serialization error, which counts as
	// ErrUnavailable and is tried again.
	Isolation pgx.TxIsoLevel
}

// Store is a store on PostgreSQL. It is safe for concurrent use.
type Store struct {
	pool       *pgxpool.Pool
	ownsPool   bool
	names      sqlstore.Names
	migrations []stores.Migration
	closed     atomic.Bool

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
	lockPrefix []byte // of what lockKey hashes
	channel    string // of notifications
	limits     serverLimits
}

var (
	_ stores.Store    = (*Store)(nil)
	_ stores.Resolver = (*Store)(nil)
)

// New returns a store on a pool that stays the caller's. It does no I/O. Handlers
// hold one connection each while they run, and one more is needed now and then, so
// the pool should have more connections than there are deliveries in flight.
func New(pool *pgxpool.Pool, c Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New("postgres: the pool is nil")
	}
	if c.TablePrefix == "" {
		c.TablePrefix = sqlstore.DefaultPrefix
	}
	names := sqlstore.Names{Schema: c.Schema, Prefix: c.TablePrefix}
	if err := names.Validate(); err != nil {
		return nil, fmt.Errorf("postgres: Config.%w", err)
	}
	isolation := c.Isolation
	switch isolation {
	case "":
		isolation = pgx.ReadCommitted
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		return nil, fmt.Errorf("postgres: Config.Isolation is %q: use pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable", isolation)
	}
	return &Store{
		pool:       pool,
		names:      names,
		migrations: sqlstore.LoadMigrations(migrationFiles, "migrations", names),
		txOptions:  pgx.TxOptions{IsoLevel: isolation}, // no access mode: a server set to read-only means it
		consumers:  make(map[stores.Consumer]int32),
	}, nil
}

// Open returns a store on a pool of its own, opened from a URL; see the package
// documentation for its parameters. It connects once, so that a wrong address,
// database or password is an error here.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("postgres: the URL cannot be parsed: write postgres://user@host/database, and percent-encode special characters in a password")
	}
	return openURL(ctx, u)
}

func openURL(ctx context.Context, u *url.URL) (*Store, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil { // its text repeats what may be a secret
		return nil, errors.New("postgres: the URL's parameters cannot be parsed: separate them with & and percent-encode special characters")
	}
	c := Config{Schema: query.Get("millpond_schema"), TablePrefix: query.Get("millpond_prefix")}
	query.Del("millpond_schema")
	query.Del("millpond_prefix")
	for name := range query {
		if strings.HasPrefix(name, "millpond_") {
			return nil, fmt.Errorf("postgres: the URL has the unknown parameter %q: there are millpond_schema and millpond_prefix", name)
		}
	}
	u.RawQuery = query.Encode()
	poolConfig, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		// pgx's text repeats the URL with the password masked only in known places.
		return nil, fmt.Errorf("postgres: the URL of host %q is not valid: %w", u.Host, parseReason(err))
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", stores.ErrUnavailable, err)
	}
	store, err := New(pool, c)
	if err == nil {
		if pingErr := pool.Ping(ctx); pingErr != nil {
			err = &connectError{host: u.Host, err: pingErr}
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	store.ownsPool = true
	return store, nil
}

func parseReason(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return errors.New("check its parameters")
}

func init() {
	open := func(ctx context.Context, u *url.URL) (stores.Store, error) {
		s, err := openURL(ctx, u)
		if err != nil {
			return nil, err // not a non-nil interface around a nil pointer
		}
		return s, nil
	}
	stores.DefaultMux().Handle("postgres", open)
	stores.DefaultMux().Handle("postgresql", open)
}

// Pool returns the pool, for the program's own work outside handlers.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Capabilities implements stores.Store.
func (s *Store) Capabilities() stores.Capabilities {
	return stores.Capabilities{System: "postgresql", ServerBound: true, Pool: stores.Pool{
		Max: int(s.pool.Config().MaxConns), Setting: "pool_max_conns", Raise: "pool_max_conns=%d among its parameters",
	}}
}

// Close closes the pool if Open has opened it.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if s.ownsPool {
		s.pool.Close()
	}
	return nil
}

// forget drops what is known of the tables.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.consumers)
	s.checked = false
}

// ready makes sure, once, that the tables are there and fit this program, for calls
// that need no registered consumer.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return stores.ErrClosed
	}
	s.mu.RLock()
	checked := s.checked
	s.mu.RUnlock()
	if checked {
		return nil
	}
	if err := s.Validate(ctx); err != nil {
		return err
	}
	if err := s.learn(ctx); err != nil {
		return unavailable(err)
	}
	s.mu.Lock()
	s.checked = true
	s.mu.Unlock()
	return nil
}

// consumerID returns the registered id of a consumer.
func (s *Store) consumerID(c stores.Consumer) (int32, error) {
	s.mu.RLock()
	id, ok := s.consumers[c]
	s.mu.RUnlock()
	if !ok {
		return 0, fmt.Errorf("postgres: %w: %s", stores.ErrNotRegistered, c)
	}
	return id, nil
}

// known returns the consumer of a key that a call may be made for.
func (s *Store) known(k stores.Key) (int32, error) {
	if s.closed.Load() {
		return 0, stores.ErrClosed
	}
	// A registered consumer is a valid one, so that only the id is left to look at.
	consumer, err := s.consumerID(k.Consumer)
	if n := len(k.ID); err != nil || n == 0 || n > stores.MaxIDBytes {
		return 0, cmp.Or(k.Validate(), err)
	}
	return consumer, nil
}
