package broker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for looking from outside
	_ "modernc.org/sqlite"             // the driver "sqlite", likewise

	"github.com/millpond-go/millpond/internal/testenv"
	mysqlserver "github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// schema is what the service writes to. Nothing in it is unique that could keep an
// effect from happening twice.
var schema = []string{
	"CREATE TABLE effect (id varchar(100) NOT NULL, part integer NOT NULL, run text NOT NULL)",
	"CREATE TABLE stock (item integer NOT NULL PRIMARY KEY, sold integer NOT NULL)",
}

// items is how many rows share the counting.
const items = 32

// database is what the parent knows of a store, with the tables of the service.
type database struct {
	name  string
	url   string  // for workers
	admin *sql.DB // for the parent
}

var databases = map[string]func(*testing.T) *database{"postgres": newPostgres, "mariadb": newMariaDB, "sqlite": newSQLite}

func newMariaDB(t *testing.T) *database {
	t.Helper()
	databaseURL := testenv.MariaDB(t).NewDatabase(t)
	store, err := mysql.Open(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	source, err := mysqlserver.ParseURL(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	return newDatabase(t, "mariadb", databaseURL, "mysql", source.FormatDSN())
}

func newPostgres(t *testing.T) *database {
	t.Helper()
	databaseURL := testenv.VolatilePostgres(t).NewDatabase(t)
	store, err := postgres.Open(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return newDatabase(t, "postgres", databaseURL, "pgx", databaseURL)
}

func newSQLite(t *testing.T) *database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crash.db")
	store, err := sqlite.New(t.Context(), path, sqlite.Config{AutoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return newDatabase(t, "sqlite", "sqlite://"+path, "sqlite", "file:"+path+"?_pragma=busy_timeout(30000)")
}

func newDatabase(t *testing.T, name, workerURL, driver, source string) *database {
	t.Helper()
	admin, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	statements := slices.Clone(schema)
	for item := range items {
		statements = append(statements, fmt.Sprintf("INSERT INTO stock VALUES (%d, 0)", item))
	}
	for _, statement := range statements {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return &database{name: name, url: workerURL, admin: admin}
}

// transaction executes a statement, with parameters $1, $2, in the transaction of an
// attempt.
type transaction func(ctx context.Context, query string, args ...any) error

// openStore opens the store of a worker, and makes handlers with its typed helper.
func openStore(ctx context.Context, rawURL string) (stores.Store, func(func(context.Context, transaction, *message.Message) error) message.NoPublishHandlerFunc, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, nil, err
	}
	switch u.Scheme {
	case "postgres", "postgresql":
		store, err := postgres.Open(ctx, rawURL)
		return store, postgresHandler, err
	case "mysql":
		store, err := mysql.Open(ctx, rawURL)
		return store, sqlHandler(mysql.Handler), err
	}
	for { // a stopped process may keep the file locked
		store, err := sqlite.New(ctx, u.Path, sqlite.Config{BusyTimeout: 100 * time.Millisecond})
		if err == nil || !errors.Is(err, stores.ErrUnavailable) || ctx.Err() != nil {
			return store, sqlHandler(sqlite.Handler), err
		}
	}
}

func postgresHandler(f func(context.Context, transaction, *message.Message) error) message.NoPublishHandlerFunc {
	return postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		return f(ctx, func(ctx context.Context, query string, args ...any) error {
			_, err := tx.Exec(ctx, query, args...)
			return err
		}, msg)
	})
}

// sqlHandler makes handlers with the typed helper of a store on database/sql, whose
// statements have a ? for each parameter, in their order.
func sqlHandler(helper func(func(context.Context, *sql.Tx, *message.Message) error) message.NoPublishHandlerFunc) func(func(context.Context, transaction, *message.Message) error) message.NoPublishHandlerFunc {
	return func(f func(context.Context, transaction, *message.Message) error) message.NoPublishHandlerFunc {
		return helper(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			return f(ctx, func(ctx context.Context, query string, args ...any) error {
				_, err := tx.ExecContext(ctx, numbered.ReplaceAllString(query, "?"), args...)
				return err
			}, msg)
		})
	}
}

var numbered = regexp.MustCompile(`\$\d`)

// reserve is for how long a retry worker has a message: less than it would ask for, so
// that what a killed one had is tried again within the test.
const reserve = 3 * time.Second

// impatient shortens reservations. It changes nothing else, unless it is to forget keys.
type impatient struct {
	stores.Store
	keyless bool
}

var (
	_ stores.Resolver   = impatient{}
	_ stores.Waker      = impatient{}
	_ stores.Attendance = impatient{}
)

func (s impatient) Record(ctx context.Context, f stores.Failure) (int64, error) {
	if f.Start {
		f.DueIn = min(f.DueIn, reserve)
	}
	return s.Store.Record(ctx, f)
}

func (s impatient) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	q.Reserve = min(q.Reserve, reserve)
	due, err := s.Store.Due(ctx, q)
	for i := range due {
		if s.keyless {
			due[i].Content.Facts.Key = nil
		}
	}
	return due, err
}

// Resolve implements stores.Resolver.
func (s impatient) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	return s.Store.(stores.Resolver).Resolve(ctx, k) //nolint:forcetypeassert // both stores are
}

// Attend implements stores.Attendance.
func (s impatient) Attend(ctx context.Context, c stores.Consumer, process string) ([]stores.Attendant, error) {
	return s.Store.(stores.Attendance).Attend(ctx, c, process) //nolint:forcetypeassert // both stores are
}

// Leave implements stores.Attendance.
func (s impatient) Leave(ctx context.Context, c stores.Consumer, process string, unseen time.Duration) error {
	return s.Store.(stores.Attendance).Leave(ctx, c, process, unseen) //nolint:forcetypeassert // both stores are
}

var errNoWaker = errors.New("this store wakes nobody")

// Listen implements stores.Waker.
func (s impatient) Listen(ctx context.Context, wake func()) error {
	if waker, ok := s.Store.(stores.Waker); ok {
		return waker.Listen(ctx, wake)
	}
	return errNoWaker
}
