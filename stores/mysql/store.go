package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// Schema is the database of millpond's tables, which must exist; "" is the connection's.
	Schema string
	// TablePrefix begins the tables' names; "" means "millpond_".
	TablePrefix string
	// Isolation is the level of the handlers' transactions, whatever the server's default:
	// sql.LevelReadCommitted, which 0 means as well, or sql.LevelRepeatableRead.
	Isolation sql.IsolationLevel
	// MaxOpenConns is how many attempts may run at a time on a store from OpenDB, each on its own
	// connection; 0 means [DefaultMaxOpenConns]. New ignores it.
	MaxOpenConns int
	// AnyServer accepts a server that is known to lack something, or whose locks do not work.
	// Otherwise the store refuses such servers.
	AnyServer bool
	// Logger gets a warning at the start for each setting that weakens the server's promises; nil
	// means slog.Default.
	Logger *slog.Logger
}

// DefaultMaxOpenConns is how many attempts run at a time on a store's own connections.
const DefaultMaxOpenConns = 16

// maxOtherConns is how many other connections such a store has, for failures, looks and the
// program's own work.
const maxOtherConns = 16

// Store is a store on MySQL, MariaDB or, as a preview, TiDB. It is safe for concurrent use.
type Store struct {
	contract

	tables   *sqlstore.Tables
	config   Config
	db       *sql.DB // for everything but attempts
	attempts *sql.DB // db, or connections that only the store uses
	own      bool    // attempts uses our connector, and Close closes both
	names    sqlstore.Names
	log      *slog.Logger
	crowd    crowd // for attempts
	writers  openWriters
	servers  servers
	lender   sqltx.Lender
	learnt
}

// contract is what all SQL stores share.
type contract = sqlstore.Store

// learnt is the result of learn. Except for the server it does not change once there is a consumer
// or the tables are ready.
type learnt struct {
	learning sync.Mutex
	current  atomic.Pointer[texts] // for the current server
	sql      *statements
	dialect  *sqlstore.Dialect // nil before learn
	warned   []weakness
}

func (s *Store) texts() *texts { return s.current.Load() }

var (
	_ stores.Store      = (*Store)(nil)
	_ stores.Resolver   = (*Store)(nil)
	_ stores.LeaseInbox = (*Store)(nil)

	_ stores.PoolReporter = (*Store)(nil)
)

// Format implements fmt.Formatter. No verb prints the connection's settings, which contain a
// password.
func (s *Store) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "a store on MySQL") }

// New returns a store on a *sql.DB of go-sql-driver/mysql, which stays the caller's. It does no
// I/O. Attempts cost two round trips more than with [OpenDB]: the claim and the completion. Each
// running handler holds one connection, and the store sometimes needs one more, so the pool should
// have more connections than there are deliveries in flight.
func New(db *sql.DB, c Config) (*Store, error) {
	if db == nil {
		return nil, errors.New("mysql: the *sql.DB is nil")
	}
	if _, ok := db.Driver().(*mysql.MySQLDriver); !ok {
		return nil, fmt.Errorf("mysql: the driver of the *sql.DB is %T: use github.com/go-sql-driver/mysql", db.Driver())
	}
	return newStore(db, db, false, c)
}

// OpenDB returns a store on connections of its own, from the driver's configuration, which it
// copies. It connects once: a wrong address, database or password is an error that wraps
// stores.ErrUnavailable. If the store cannot run on the server, the error does not wrap it.
//
// Two of the driver's parameters are millpond's: MultiStatements must be off, and InterpolateParams
// is switched on, except for handlers, which keep the configured value.
func OpenDB(ctx context.Context, driverConfig *mysql.Config, c Config) (*Store, error) {
	if driverConfig == nil {
		return nil, errors.New("mysql: the driver's configuration is nil: use that driver's NewConfig or ParseDSN")
	}
	if driverConfig.MultiStatements {
		return nil, errors.New("mysql: MultiStatements is on, which lets whatever gets into a handler's SQL text end its transaction: switch it off")
	}
	if c.MaxOpenConns < 0 {
		return nil, fmt.Errorf("mysql: Config.MaxOpenConns is %d: it must not be negative", c.MaxOpenConns)
	}
	c.MaxOpenConns = cmp.Or(c.MaxOpenConns, DefaultMaxOpenConns)
	driverConfig = driverConfig.Clone()
	if driverConfig.Logger == mysql.NewConfig().Logger {
		driverConfig.Logger = driverLog{c.Logger}
	}
	attempts, err := newConnector(driverConfig, c.Isolation)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	others := driverConfig.Clone()
	others.InterpolateParams = true // saves two round trips
	others.MaxAllowedPacket = 0     // use the server's value
	if others.Params == nil {
		others.Params = make(map[string]string)
	}
	others.Params["autocommit"] = "1" + forTiDB // whatever the server's defaults
	connector, err := mysql.NewConnector(others)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	s, err := newStore(sql.OpenDB(connector), sql.OpenDB(attempts), true, c)
	if err != nil {
		return nil, err
	}
	s.attempts.SetMaxOpenConns(c.MaxOpenConns)
	s.attempts.SetMaxIdleConns(c.MaxOpenConns)
	s.db.SetMaxOpenConns(maxOtherConns)
	s.db.SetMaxIdleConns(min(maxOtherConns, runtime.GOMAXPROCS(0)))
	if _, err := s.recognise(ctx, s.db); err != nil {
		_ = s.Close()
		return nil, cannotConnect(driverConfig.Addr, err)
	}
	return s, nil
}

// driverLog gets what the driver would write to standard error, such as connections that the server
// closed. Real errors are also returned.
type driverLog struct{ to *slog.Logger }

func (l driverLog) Print(v ...any) {
	to := l.to
	if to == nil {
		to = slog.Default()
	}
	to.Debug("millpond: mysql: driver", slog.String("said", fmt.Sprint(v...)))
}

func newStore(db, attempts *sql.DB, own bool, c Config) (*Store, error) {
	names, err := sqlstore.NewNames(c.Schema, c.TablePrefix)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	switch c.Isolation {
	case sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead:
	default:
		return nil, fmt.Errorf("mysql: Config.Isolation is %s: use sql.LevelReadCommitted or sql.LevelRepeatableRead", c.Isolation)
	}
	log := c.Logger
	if log == nil {
		log = slog.Default()
	}
	s := &Store{config: c, db: db, attempts: attempts, own: own, names: names, log: log, crowd: newCrowd()}
	s.tables = sqlstore.New("mysql", database{s}, sqlstore.LoadMigrations(migrationFiles, "migrations", names))
	s.contract = s.tables.Store()
	return s, nil
}

// SetLogger replaces Config.Logger. Call it before the store is used.
func (s *Store) SetLogger(l *slog.Logger) { s.log = l }

// DB returns the *sql.DB for the program's own work outside handlers: the one given to New, or one
// that OpenDB opened.
func (s *Store) DB() *sql.DB { return s.db }

// Capabilities implements stores.Store. The database system is known once a consumer is registered.
func (s *Store) Capabilities() stores.Capabilities {
	system, unordered := "mysql", false
	if t := s.texts(); t != nil {
		system, unordered = strings.ToLower(t.name()), t.unordered
	}
	return stores.Capabilities{
		System: system, ServerBound: true, SessionShared: !s.own, OutputsUnordered: unordered,
		StaleUnseen: s.texts() != nil && !s.looksAtTimes(), Pool: s.pool(),
	}
}

// pool describes the pool of attempts.
func (s *Store) pool() stores.Pool {
	if !s.own {
		return stores.Pool{Max: s.db.Stats().MaxOpenConnections, Setting: "SetMaxOpenConns of the *sql.DB", Raise: "nothing: call SetMaxOpenConns(%d)"}
	}
	return stores.Pool{Max: s.config.MaxOpenConns, Setting: "max_open_conns", Raise: "max_open_conns=%d among its parameters"}
}

// PoolUse implements stores.PoolReporter.
func (s *Store) PoolUse() stores.PoolUse { return sqlstore.PoolUse(s.attempts) }

// Close closes the connections that OpenDB opened. The *sql.DB given to New stays open.
func (s *Store) Close() error {
	if !s.tables.Close() || !s.own {
		return nil
	}
	return errors.Join(s.lender.Close(), s.attempts.Close(), s.db.Close())
}
