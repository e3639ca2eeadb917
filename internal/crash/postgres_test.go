package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for looking from outside

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/postgres"
)

// newPostgres is a database on the server that all tests share.
func newPostgres(t *testing.T) *system {
	t.Helper()
	return onPostgres(t, "postgres", testenv.VolatilePostgres(t).NewDatabase(t))
}

// newProxiedPostgres is the same behind a proxy.
func newProxiedPostgres(t *testing.T) *system {
	t.Helper()
	return newPostgres(t).behindProxy(t)
}

// newFragilePostgres is a server of its own behind a proxy, both of which may be hurt.
func newFragilePostgres(t *testing.T) *system {
	t.Helper()
	return onPrivatePostgres(t, "postgres").behindProxy(t)
}

// newPooledPostgres is behind a pooler in transaction mode, which may be hurt as well.
// Clients reach it through a proxy.
func newPooledPostgres(t *testing.T) *system {
	t.Helper()
	if rotation.Kills(t) > 0 {
		return pooled(t, onPrivatePostgres(t, "pgbouncer")).behindProxy(t)
	}
	return onPooledPostgres(t, "pgbouncer", testenv.VolatilePostgres(t).NewDatabase(t)).behindProxy(t)
}

func onPooledPostgres(t *testing.T, name, databaseURL string) *system {
	t.Helper()
	return pooled(t, onPostgres(t, name, databaseURL))
}

// pooled puts a pooler between the workers and the server.
func pooled(t *testing.T, s *system) *system {
	t.Helper()
	pooler := testenv.PgBouncer(t, s.url, testenv.WithPgBouncerSettings(map[string]string{
		"default_pool_size": "20", "server_login_retry": "1",
	}))
	s.pooler, s.url = pooler, pooler.URL()
	s.dialect.without = append([]conduct{settings}, s.dialect.without...) // sessions are the pooler's
	return s
}

func onPrivatePostgres(t *testing.T, name string) *system {
	t.Helper()
	server := testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{"track_commit_timestamp": "on"}))
	s := onPostgres(t, name, server.NewDatabase(t))
	s.server, s.commitTimes = server, true
	return s
}

func onPostgres(t *testing.T, name, databaseURL string) *system {
	t.Helper()
	store, err := postgres.Open(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return newSystem(t, name, databaseURL, openAdmin(t, databaseURL), postgresDialect)
}

func openAdmin(t *testing.T, databaseURL string) *sql.DB {
	t.Helper()
	admin, err := sql.Open("pgx", withParameter(t, databaseURL, "application_name", adminName))
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// adminName tells the parent's sessions from the workers'.
const adminName = "crash-admin"

// modes are pgx's ways to send a statement. Each worker uses another one, since their
// COMMITs look different on the wire.
var modes = []string{"cache_statement", "cache_describe", "exec", "simple_protocol"}

// pooledModes are those that a pooler in transaction mode lets pass.
var pooledModes = modes[1:]

// withParameters adds parameters to a URL.
func withParameters(rawURL string, parameters map[string]string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return rawURL // whoever opens it will say so
	}
	query := u.Query()
	for name, value := range parameters {
		query.Set(name, value)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

func withParameter(t *testing.T, rawURL, name, value string) string {
	t.Helper()
	return withParameters(rawURL, map[string]string{name: value})
}

// ofWorker is the address for one worker, in one of pgx's modes.
func ofWorker(rawURL string, modes []string, worker int) string {
	return withParameters(rawURL, map[string]string{
		"default_query_exec_mode": modes[worker%len(modes)], "connect_timeout": "2",
	})
}

const maxConns = 16

func openPostgres(ctx context.Context, rawURL string, worker int) (*backend, error) {
	rawURL = ofWorker(rawURL, modes, worker)
	config, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Tracer, config.MaxConns = noLocalTime{}, maxConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		return nil, err
	}
	b, err := pgxBackend(store, rawURL)
	if err == nil {
		db := b.close
		b.close = func() { db(); pool.Close() }
	}
	return b, err
}

// openPooled opens the store as a program does that has a pooler before its server.
func openPooled(ctx context.Context, rawURL string, worker int) (*backend, error) {
	rawURL = ofWorker(rawURL, pooledModes, worker)
	storeURL := withParameters(rawURL, map[string]string{"pgbouncer": "transaction", "pool_max_conns": fmt.Sprint(maxConns)})
	store, err := untilUp(ctx, func() (*postgres.Store, error) { return postgres.Open(ctx, storeURL) })
	if err != nil {
		return nil, err
	}
	return pgxBackend(store, rawURL)
}

func pgxBackend(store *postgres.Store, rawURL string) (*backend, error) {
	db, err := sql.Open("pgx", rawURL)
	if err != nil {
		return nil, err
	}
	return &backend{
		store: store,
		handler: func(f effectFunc) message.NoPublishHandlerFunc {
			return postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
				return f(ctx, pgxTx{tx}, msg)
			})
		},
		find: func(ctx context.Context) (transaction, bool) {
			tx, ok := postgres.TxFromContext(ctx)
			return pgxTx{tx}, ok
		},
		db: db, dialect: postgresDialect,
		close: func() { _ = db.Close() },
	}, nil
}

type pgxTx struct{ pgx.Tx }

func (t pgxTx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.Exec(ctx, query, args...)
	return err
}

func (t pgxTx) ask(ctx context.Context, query string) (answer string, err error) {
	err = t.QueryRow(ctx, query).Scan(&answer)
	return answer, err
}

func (t pgxTx) finish(ctx context.Context, commit bool) error {
	if commit {
		return t.Commit(ctx)
	}
	return t.Rollback(ctx)
}

func (t pgxTx) linger(ctx context.Context) error { return t.exec(ctx, postgresDialect.linger) }

// detour reaches around the transaction, and uses it in a batch and in a savepoint.
func (t pgxTx) detour(ctx context.Context) error {
	var one int
	if err := t.Conn().QueryRow(ctx, "SELECT 1").Scan(&one); err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue("SELECT 1")
	batch.Queue("SELECT 2")
	if err := t.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	undone := errors.New("undone")
	err := pgx.BeginFunc(ctx, t.Tx, func(savepoint pgx.Tx) error {
		if _, err := savepoint.Exec(ctx, insertEffect, "nobody", "savepoint", 1, "", ""); err != nil {
			return err
		}
		return undone
	})
	if errors.Is(err, undone) {
		return nil
	}
	return fmt.Errorf("savepoint: %w", err)
}

func (t pgxTx) fail(ctx context.Context) error { return t.exec(ctx, postgresDialect.fail) }
