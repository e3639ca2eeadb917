package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Synchronous says what a commit waits for.
type Synchronous uint8

const (
	// Full: when a commit returns, it is on the disk. The default.
	Full Synchronous = iota
	// Normal: commits survive the end of the process, but a crash of the machine may lose the last
	// ones, and with them messages that were acked.
	Normal
)

// DefaultBusyTimeout is how long a store waits for other processes' writes.
const DefaultBusyTimeout = 5 * time.Second

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// TablePrefix begins the tables' names; "" means "millpond_".
	TablePrefix string
	// BusyTimeout is how long to wait while another process, or the program through DB, is writing.
	// After it the error wraps stores.ErrUnavailable. 0 means DefaultBusyTimeout.
	BusyTimeout time.Duration
	// Synchronous is how durable a commit is.
	Synchronous Synchronous
	// AutoMigrate runs Migrate when the store is opened.
	AutoMigrate bool
}

// Store is a store on one SQLite file. It is safe for concurrent use.
type Store struct {
	contract

	tables  *sqlstore.Tables
	dialect *sqlstore.Dialect
	path    string
	sql     [preparedStatements]string
	maxRow  int // in bytes

	writer  *writer
	reader  *sql.DB // cannot write
	program *sql.DB
	lender  sqltx.Lender
	look    lazyStatement
	flights flights
}

// contract is what all SQL stores share.
type contract = sqlstore.Store

var (
	_ stores.Store      = (*Store)(nil)
	_ stores.Resolver   = (*Store)(nil)
	_ stores.LeaseInbox = (*Store)(nil)
	_ stores.Batcher    = (*Store)(nil)
)

// New opens the database file at path. If the file does not exist it creates it, readable for the
// user alone; the directory must exist. A relative path is relative to the current directory.
//
// Errors name the path and what is wrong with it. They wrap stores.ErrUnavailable if the file
// cannot be used now. With Config.AutoMigrate they may be Migrate's.
func New(ctx context.Context, path string, c Config) (*Store, error) {
	s, err := newStore(path, c)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	createPrivate(s.path)
	err = s.writer.whileLocked(ctx, s.writer.patience(), func() error { return s.writer.db.PingContext(ctx) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: open %s: %w", s.path, unavailable(err)), s.Close())
	}
	if c.AutoMigrate {
		if _, err := s.Migrate(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func newStore(path string, c Config) (*Store, error) {
	if c.BusyTimeout == 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	names, err := sqlstore.NewNames("main", c.TablePrefix) // never a temporary table with the same name
	if err != nil {
		return nil, err
	}
	if c.BusyTimeout < 0 {
		return nil, fmt.Errorf("Config.BusyTimeout is %v: it must not be negative", c.BusyTimeout)
	}
	synchronous := "FULL"
	switch c.Synchronous {
	case Full:
	case Normal:
		synchronous = "NORMAL"
	default:
		return nil, fmt.Errorf("Config.Synchronous is %d: use Full or Normal", c.Synchronous)
	}
	path, err = usable(path)
	if err != nil {
		return nil, err
	}
	modernc, err := registeredDriver()
	if err != nil {
		return nil, err
	}
	s := &Store{
		path:    path,
		dialect: newDialect(names),
		maxRow:  maxRow,
	}
	s.sql = newStatements(s.dialect)
	s.tables = sqlstore.New("sqlite", database{s}, sqlstore.LoadMigrations(migrationFiles, "migrations", names))
	s.contract = s.tables.Store()
	open := func(c connector) *sql.DB {
		c.driver, c.dsn = modernc, dsn(path)
		return sql.OpenDB(&c)
	}
	durable := "PRAGMA synchronous = " + synchronous + "; PRAGMA foreign_keys = ON;"
	s.writer = newWriter(open(connector{
		setup: durable + "PRAGMA busy_timeout = 0;",
		wal:   true,
		wrap:  func(n native) driver.Conn { return newConn(n, &s.sql) },
	}), c.BusyTimeout)
	// Readers wait only for a file that is being recovered or closed.
	s.reader = open(connector{setup: "PRAGMA query_only = ON; PRAGMA busy_timeout = 1000;"})
	s.reader.SetMaxIdleConns(maxReaders)
	s.reader.SetMaxOpenConns(maxReaders)
	s.program = open(connector{setup: durable + fmt.Sprintf("PRAGMA busy_timeout = %d;", c.BusyTimeout.Milliseconds())})
	s.look.db, s.look.query = s.reader, s.sql[lookStatement]
	return s, nil
}

// maxReaders is how many looks run concurrently.
const maxReaders = 8

// usable returns the absolute path, or why it cannot hold a database.
func usable(path string) (string, error) {
	switch path {
	case "":
		return "", errors.New("the path of the database is empty: name a file")
	case ":memory:":
		return "", errors.New(":memory: is not supported, because acked messages must survive the process: name a file, in a temporary directory for tests")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", path)
	}
	switch info, err := os.Stat(filepath.Dir(path)); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("directory %s does not exist: create it first", filepath.Dir(path))
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a directory", filepath.Dir(path))
	}
	return path, nil
}

var creating sync.Mutex

// createPrivate creates the file if it does not exist, because SQLite would let everybody read it.
// SQLite's other files get its mode. It opens no existing file: closing it would release the locks
// that others in this process hold. If it fails, SQLite reports the reason.
func createPrivate(path string) {
	creating.Lock()
	defer creating.Unlock()
	if file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err == nil { //nolint:gosec // the caller names the file
		_ = file.Close() // nothing was written
	}
}

// DB returns a handle for the program's own reads, and for its setup before handlers run. It is
// separate from handlers' transactions: its writes commit as usual and compete with handlers for
// the one writer; both wait up to the busy timeout. A handler that writes through it would wait for
// itself, and gets SQLITE_BUSY: handlers use [TxFromContext] or [Handler].
//
// Foreign keys are on, and BeginTx takes the write lock at once unless the transaction is
// read-only. Closing the store closes the handle.
func (s *Store) DB() *sql.DB { return s.program }

// Capabilities implements stores.Store.
func (s *Store) Capabilities() stores.Capabilities {
	return stores.Capabilities{System: "sqlite", SingleWriter: true}
}

// Close closes the file. An open attempt can still be ended; it keeps the file open until then.
func (s *Store) Close() error {
	if !s.tables.Close() {
		return nil
	}
	return errors.Join(s.reader.Close(), s.program.Close(), s.lender.Close(), s.writer.close())
}
