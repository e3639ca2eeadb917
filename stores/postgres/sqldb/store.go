package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
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
	// Isolation is the level of handlers' transactions: read committed (also as sql.LevelDefault),
	// repeatable read or serializable. Above read committed a claim may fail with a serialization
	// error. It then counts as in flight: the delivery asks again, and no other message stops.
	Isolation sql.IsolationLevel
	// ProveCommit asks the server before each COMMIT whether the transaction is still the one with
	// the claim, for one more round trip. It is for a *sql.DB that is not OpenDB's or
	// NewConnector's; theirs prove it without extra cost. See stores.Capabilities.CommitUnproven.
	ProveCommit bool
	// AnyServer accepts a server that calls itself something other than PostgreSQL, or whose locks
	// do not work. Otherwise the store refuses such servers.
	AnyServer bool
}

var isolations = map[sql.IsolationLevel]pgx.TxIsoLevel{
	sql.LevelDefault:        pgx.ReadCommitted,
	sql.LevelReadCommitted:  pgx.ReadCommitted,
	sql.LevelRepeatableRead: pgx.RepeatableRead,
	sql.LevelSerializable:   pgx.Serializable,
}

// Store is a store on PostgreSQL whose handlers get a *sql.Tx. It is safe for
// concurrent use.
//
// It implements stores.Store, stores.Resolver, stores.Waker and stores.PoolReporter.
type Store struct {
	contract

	tables *tables.Tables
	db     *sql.DB
	ownsDB bool
	ours   *connector // nil: the caller's *sql.DB
	isPgx  bool       // the caller's *sql.DB uses pgx's driver
	lender sqltx.Lender
	config Config
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

// New returns a store on a *sql.DB, which stays the caller's. It does no I/O. Each running handler
// holds one connection, and the store sometimes needs one more, so SetMaxOpenConns should allow
// more than there are deliveries in flight.
//
// New recognizes a *sql.DB from OpenDB, or on a connector of NewConnector. With any other, a
// message's first delivery takes one more round trip, and Capabilities says what its commit cannot
// prove.
func New(db *sql.DB, c Config) (*Store, error) {
	if db == nil {
		return nil, errors.New("sqldb: the *sql.DB is nil")
	}
	isolation, ok := isolations[c.Isolation]
	if !ok {
		return nil, fmt.Errorf("sqldb: Config.Isolation is %q: use sql.LevelReadCommitted, sql.LevelRepeatableRead or sql.LevelSerializable", c.Isolation)
	}
	t, err := tables.New(sqlDB{db}, tables.Config{Schema: c.Schema, TablePrefix: c.TablePrefix, Isolation: isolation, AnyServer: c.AnyServer})
	if err != nil {
		return nil, fmt.Errorf("sqldb: %w", err)
	}
	s := &Store{contract: t.Store(), tables: t, db: db, config: c}
	if known, ok := db.Driver().(connectorDriver); ok {
		s.ours = known.connector
	}
	_, s.isPgx = db.Driver().(*stdlib.Driver)
	return s, nil
}

// Open returns a store on a *sql.DB of its own, opened from a URL as OpenDB does. It connects once:
// a wrong address, database or password is an error.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return openURL(ctx, u)
}

// OpenDB opens a *sql.DB from a URL, for New and for the program's other work. The package
// documentation describes the parameters; those of millpond's tables are only for Open. It does no
// I/O. The caller closes it.
func OpenDB(rawURL string) (*sql.DB, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	parsed, err := pgurl.Parse(u)
	if err != nil {
		return nil, fmt.Errorf("sqldb: %w", err)
	}
	return openDB(parsed), nil
}

func parse(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil { // its text repeats what may be a secret
		return nil, errors.New("sqldb: the URL cannot be parsed: write postgres+sql://user@host/database, and percent-encode special characters in a password")
	}
	return u, nil
}

func openDB(parsed pgurl.URL) *sql.DB {
	pool := parsed.Pool
	db := sql.OpenDB(&connector{inner: stdlib.GetConnector(*pool.ConnConfig), pooled: parsed.Pooled})
	db.SetMaxOpenConns(int(pool.MaxConns))
	db.SetMaxIdleConns(int(pool.MaxConns))
	db.SetConnMaxLifetime(pool.MaxConnLifetime)
	db.SetConnMaxIdleTime(pool.MaxConnIdleTime)
	return db
}

func openURL(ctx context.Context, u *url.URL) (*Store, error) {
	parsed, err := pgurl.Parse(u)
	if err != nil {
		return nil, fmt.Errorf("sqldb: %w", err)
	}
	db := openDB(parsed)
	store, err := New(db, Config{Schema: parsed.Schema, TablePrefix: parsed.TablePrefix, AnyServer: parsed.AnyServer})
	if err == nil {
		if pingErr := db.PingContext(ctx); pingErr != nil {
			err = pgurl.ConnectError(u.Host, pingErr)
		}
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	store.ownsDB = true
	return store, nil
}

func init() {
	open := urlmux.Opened[stores.Store](openURL)
	for _, scheme := range []string{"postgres+sql", "postgresql+sql"} {
		stores.DefaultMux().Handle(scheme, open)
		stores.DefaultMux().HandleCheck(scheme, func(u *url.URL) error { return pgurl.Check("sqldb", u) })
		stores.DefaultMux().HandleExposure(scheme, func(u *url.URL) error { return pgurl.Exposure("sqldb", u) })
	}
}

// DB returns the *sql.DB, for the program's own work outside handlers.
func (s *Store) DB() *sql.DB { return s.db }

// Capabilities implements stores.Store.
func (s *Store) Capabilities() stores.Capabilities {
	c := stores.Capabilities{
		System: "postgresql", ServerBound: true,
		CommitUnproven: s.ours == nil && !s.config.ProveCommit,
		SessionShared:  s.ours == nil || s.ours.pooled,
		Pool:           stores.Pool{Max: s.db.Stats().MaxOpenConnections, Setting: "SetMaxOpenConns", Raise: "SetMaxOpenConns(%d) on the *sql.DB"},
	}
	if s.ownsDB {
		c.Pool.Setting, c.Pool.Raise = "pool_max_conns", "pool_max_conns=%d among its parameters"
	}
	return c
}

// PoolUse implements stores.PoolReporter.
func (s *Store) PoolUse() stores.PoolUse { return sqlstore.PoolUse(s.db) }

// Close closes the *sql.DB if Open opened it.
func (s *Store) Close() error {
	if !s.tables.Close() {
		return nil
	}
	err := s.lender.Close()
	if s.ownsDB {
		err = errors.Join(err, s.db.Close())
	}
	if err != nil {
		return fmt.Errorf("sqldb: %w", err)
	}
	return nil
}

// Listen implements stores.Waker, on a separate connection that does not count towards the limit of
// the *sql.DB. It needs a connector of this package. With any other, and behind a pooler in
// transaction mode, it returns at once an error that wraps errors.ErrUnsupported, and retry workers
// poll.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	if err := s.hears(); err != nil {
		return err
	}
	return s.tables.Listen(ctx, s.apart, wake)
}

func (s *Store) hears() error {
	switch {
	case s.ours == nil:
		return fmt.Errorf("sqldb: listen: %w: database/sql has no notifications", errors.ErrUnsupported)
	case s.ours.pooled:
		return pgurl.ErrNoListen
	}
	return nil
}

// apart opens a connection outside the *sql.DB.
func (s *Store) apart(ctx context.Context) (*pgx.Conn, error) {
	native, err := s.ours.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return native.(pgxConn).Conn(), nil //nolint:forcetypeassert // it is pgx's connector
}

// WakeRelays implements stores.OutboxWaker, by NOTIFY.
func (s *Store) WakeRelays(ctx context.Context, w stores.OutboxWake) error {
	return s.tables.WakeRelays(ctx, w)
}

// ListenOutbox implements stores.OutboxWaker, as Listen does stores.Waker.
func (s *Store) ListenOutbox(ctx context.Context, wake func(stores.OutboxWake)) error {
	if err := s.hears(); err != nil {
		return err
	}
	return s.tables.ListenOutbox(ctx, s.apart, wake)
}

// Begin implements stores.Inbox. With our connector it takes one round trip if the claim is won, a
// second one to find out why not, and a third if the claim can be won after all. Otherwise BEGIN
// and ROLLBACK take separate round trips.
func (s *Store) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	consumer, err := s.tables.Known(c.Key)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	begin := s.begin
	if s.ours == nil {
		begin = s.beginPlain
	}
	a, verdict, err := begin(ctx, consumer, &c)
	if err != nil {
		return nil, stores.Verdict{}, s.tables.Explain(err)
	}
	return a, verdict, nil
}

// level returns the isolation to ask for, or the default if that is the same.
func (s *Store) level() sql.IsolationLevel {
	if s.tables.TxOptions().IsoLevel == "" {
		return sql.LevelDefault
	}
	return cmp.Or(s.config.Isolation, sql.LevelReadCommitted)
}
