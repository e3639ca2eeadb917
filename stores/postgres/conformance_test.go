package postgres_test

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the suite reads through database/sql

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/storetest"
)

func TestConformance(t *testing.T) {
	h := harness()
	h.NewDatabase = func(tb testing.TB) *storetest.Database {
		tb.Helper()
		address := impatient(tb, testenv.Postgres(tb).NewDatabase(tb))
		return conformanceDatabase(tb, address, openConformance(address))
	}
	h.NewServer = conformanceServer
	storetest.Run(t, h)
}

// Behind a pooler in transaction mode nothing of a session may be relied on.
func TestConformanceBehindPgBouncer(t *testing.T) {
	t.Parallel()
	h := harness()
	h.NewDatabase = func(tb testing.TB) *storetest.Database {
		tb.Helper()
		address := testenv.Postgres(tb).NewDatabase(tb)
		pooler := testenv.PgBouncer(tb, address)
		db := conformanceDatabase(tb, address, func(tb testing.TB, _ postgres.Config) stores.Store {
			tb.Helper()
			store, err := postgres.Open(tb.Context(), withParameter(pooler.URL(), "pgbouncer=transaction&pool_max_conns=6"))
			if err != nil {
				tb.Fatal(err)
			}
			return store
		})
		db.StrictIsolation = nil // a URL does not choose one
		return db
	}
	if os.Getenv("MILLPOND_SOAK") == "" {
		h.Groups = []string{"claim", "resolve", "record", "due", "inbox"}
	}
	storetest.Run(t, h)
}

func harness() storetest.Harness {
	return storetest.Harness{
		Write: func(ctx context.Context, e storetest.Effect) error {
			return inTx(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO "+storetest.EffectTable+" (effect_key, label, run) VALUES ($1, $2, $3)", e.Key, e.Label, e.Run)
				return err
			})
		},
		Handler: func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
			return postgres.Handler(func(ctx context.Context, _ pgx.Tx, msg *message.Message) error { return f(ctx, msg) })
		},
		Ways:  ways(),
		Acts:  acts(),
		Lacks: map[storetest.Act]string{},
	}
}

type opener func(tb testing.TB, config postgres.Config) stores.Store

func conformanceDatabase(tb testing.TB, address string, open opener) *storetest.Database {
	tb.Helper()
	admin, err := sql.Open("pgx", address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { admin.Close() })
	for _, text := range []string{
		"CREATE TABLE storetest_many (n bigint)",
		"CREATE TABLE storetest_pair (id integer PRIMARY KEY, n integer NOT NULL)",
		"INSERT INTO storetest_pair VALUES (1, 0), (2, 0)",
		"CREATE TABLE storetest_deferred (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED)",
		"CREATE PROCEDURE storetest_commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'",
	} {
		if _, err := admin.ExecContext(tb.Context(), text); err != nil {
			tb.Fatal(err)
		}
	}
	var config postgres.Config
	return &storetest.Database{
		Admin: admin,
		Open: func(tb testing.TB) stores.Store {
			tb.Helper()
			return open(tb, config)
		},
		StrictIsolation: func(testing.TB) { config.Isolation = pgx.Serializable },
	}
}

// impatient lets commits return before they are on the disk, for servers that are not
// killed. Nothing that is checked on them depends on it.
func impatient(tb testing.TB, address string) string {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	query.Set("synchronous_commit", "off")
	u.RawQuery = query.Encode()
	return u.String()
}

// openConformance opens stores on a pool each, which is closed with the store.
func openConformance(address string) opener {
	return func(tb testing.TB, config postgres.Config) stores.Store {
		tb.Helper()
		poolConfig, err := pgxpool.ParseConfig(address)
		if err != nil {
			tb.Fatal(err)
		}
		poolConfig.MaxConns = 6
		pool, err := pgxpool.NewWithConfig(tb.Context(), poolConfig)
		if err != nil {
			tb.Fatal(err)
		}
		store, err := postgres.New(pool, config)
		if err != nil {
			tb.Fatal(err)
		}
		return &onPool{store, pool}
	}
}

// onPool closes the pool with the store.
type onPool struct {
	*postgres.Store
	pool *pgxpool.Pool
}

func (s *onPool) Close() error {
	err := s.Store.Close()
	s.pool.Close()
	return err
}

// conformanceServer is a database on a server that can be killed, and turned into a
// standby, which takes no writes.
func conformanceServer(tb testing.TB) *storetest.Database {
	tb.Helper()
	server := testenv.PrivatePostgres(tb)
	address := server.NewDatabase(tb)
	db := conformanceDatabase(tb, address, openConformance(address))
	fatal := func(tb testing.TB, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	db.Outage = func(tb testing.TB) func() {
		tb.Helper()
		fatal(tb, server.Kill())
		return func() { fatal(tb, server.Start(tb.Context())) }
	}
	db.ReadOnly = func(tb testing.TB) func() {
		tb.Helper()
		var data string
		fatal(tb, db.Admin.QueryRowContext(tb.Context(), "SHOW data_directory").Scan(&data))
		fatal(tb, server.Stop(tb.Context()))
		fatal(tb, becomeStandby(data))
		fatal(tb, server.Start(tb.Context()))
		return func() {
			var promoted bool
			conn, err := pgx.Connect(tb.Context(), server.URL())
			fatal(tb, err)
			defer conn.Close(tb.Context())
			fatal(tb, conn.QueryRow(tb.Context(), "SELECT pg_promote()").Scan(&promoted))
			if !promoted {
				tb.Fatal("the standby was not promoted")
			}
		}
	}
	return db
}

// becomeStandby makes the server start in recovery, without an upstream.
func becomeStandby(data string) error {
	signal := filepath.Join(data, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	info, err := os.Stat(data)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		return os.Chown(signal, int(owner.Uid), int(owner.Gid))
	}
	return nil
}

func inTx(ctx context.Context, f func(tx pgx.Tx) error) error {
	tx, ok := postgres.TxFromContext(ctx)
	if !ok {
		return stores.ErrNoTx
	}
	return f(tx)
}
