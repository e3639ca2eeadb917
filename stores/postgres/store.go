package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/pgurl"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// Schema is the schema of millpond's tables, which must exist; "" is the first in the
	// connection's search_path.
	Schema string
	// TablePrefix begins the tables' names; "" means "millpond_".
	TablePrefix string
	// Isolation is the level of handlers' transactions; "" means read committed. Above read
	// committed a claim may fail with a serialization error. It then counts as in flight: the
	// delivery asks again, and no other message stops.
	Isolation pgx.TxIsoLevel
	// AnyServer accepts a server that calls itself something other than PostgreSQL, or whose locks
	// do not work. Otherwise the store refuses such servers.
	AnyServer bool
}

// Store is a store on PostgreSQL. It is safe for concurrent use.
//
// It implements stores.Store, stores.Resolver, stores.Batcher, stores.Waker and stores.PoolReporter.
type Store struct {
	contract

	tables   *tables.Tables
	pool     *pgxpool.Pool
	ownsPool bool
	pooled   bool // behind a pooler in transaction mode
}

// contract is shared by all stores on PostgreSQL.
type contract = tables.Store

var (
	_ stores.Store      = (*Store)(nil)
	_ stores.Resolver   = (*Store)(nil)
	_ stores.LeaseInbox = (*Store)(nil)
	_ stores.Waker      = (*Store)(nil)

	_ stores.PoolReporter = (*Store)(nil)
)

// New returns a store on a pool, which stays the caller's. It does no I/O. Each running handler
// holds one connection, and the store sometimes needs one more, so the pool should have more
// connections than there are deliveries in flight.
func New(pool *pgxpool.Pool, c Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New("postgres: the pool is nil")
	}
	switch c.Isolation {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		return nil, fmt.Errorf("postgres: Config.Isolation is %q: use pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable", c.Isolation)
	}
	t, err := tables.New(pgxDB{pool}, tables.Config(c))
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &Store{contract: t.Store(), tables: t, pool: pool}, nil
}

// Open returns a store on a pool of its own, from a URL. The package documentation lists the
// parameters. It connects once: a wrong address, database or password is an error.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("postgres: the URL cannot be parsed: write postgres://user@host/database, check host:port, and percent-encode special characters in a password")
	}
	return openURL(ctx, u)
}

func openURL(ctx context.Context, u *url.URL) (*Store, error) {
	parsed, err := pgurl.Parse(u)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, parsed.Pool)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", stores.ErrUnavailable, err)
	}
	store, err := New(pool, Config{Schema: parsed.Schema, TablePrefix: parsed.TablePrefix, AnyServer: parsed.AnyServer})
	if err == nil {
		if pingErr := pool.Ping(ctx); pingErr != nil {
			err = pgurl.ConnectError(u.Host, pingErr)
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	store.ownsPool, store.pooled = true, parsed.Pooled
	return store, nil
}

func init() {
	open := urlmux.Opened[stores.Store](openURL)
	for _, scheme := range []string{"postgres", "postgresql"} {
		stores.DefaultMux().Handle(scheme, open)
		stores.DefaultMux().HandleCheck(scheme, func(u *url.URL) error { return pgurl.Check("postgres", u) })
		stores.DefaultMux().HandleExposure(scheme, func(u *url.URL) error { return pgurl.Exposure("postgres", u) })
	}
}

// Pool returns the pool, for the program's own work outside handlers.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Capabilities implements stores.Store.
func (s *Store) Capabilities() stores.Capabilities {
	return stores.Capabilities{System: "postgresql", ServerBound: true, SessionShared: s.pooled, Pool: stores.Pool{
		Max: int(s.pool.Config().MaxConns), Setting: "pool_max_conns", Raise: "pool_max_conns=%d among its parameters",
	}}
}

// PoolUse implements stores.PoolReporter.
func (s *Store) PoolUse() stores.PoolUse {
	stat := s.pool.Stat()
	return stores.PoolUse{
		InUse: int(stat.AcquiredConns()), Idle: int(stat.IdleConns()),
		Waits: stat.EmptyAcquireCount(), Waited: stat.EmptyAcquireWaitTime(),
	}
}

// Close closes the pool if Open opened it.
func (s *Store) Close() error {
	if s.tables.Close() && s.ownsPool {
		s.pool.Close()
	}
	return nil
}

// Listen implements stores.Waker, on a separate connection that the pool's settings open and its
// limit does not count. Notifications do not pass a pooler in transaction mode: then it returns at
// once an error that wraps errors.ErrUnsupported.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	if s.pooled {
		return pgurl.ErrNoListen
	}
	return s.tables.Listen(ctx, s.apart, wake)
}

// apart opens a connection with the pool's settings, outside the pool.
func (s *Store) apart(ctx context.Context) (*pgx.Conn, error) {
	pooled, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return pooled.Hijack(), nil
}

// WakeRelays implements stores.OutboxWaker, by NOTIFY.
func (s *Store) WakeRelays(ctx context.Context, w stores.OutboxWake) error {
	return s.tables.WakeRelays(ctx, w)
}

// ListenOutbox implements stores.OutboxWaker, as Listen does stores.Waker.
func (s *Store) ListenOutbox(ctx context.Context, wake func(stores.OutboxWake)) error {
	if s.pooled {
		return pgurl.ErrNoListen
	}
	return s.tables.ListenOutbox(ctx, s.apart, wake)
}
