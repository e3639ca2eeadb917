package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// transaction is a native transaction as the service uses it. Statements have $1, $2.
type transaction interface {
	exec(ctx context.Context, query string, args ...any) error
	// finish calls the native Commit or Rollback.
	finish(ctx context.Context, commit bool) error
	// linger runs a statement that takes about 50 ms, longer if the machine is busy.
	linger(ctx context.Context) error
	// detour is honest, but after it the store cannot take the commit for granted.
	detour(ctx context.Context) error
	// fail runs a statement that fails, and rolls back if a statement can do that.
	fail(ctx context.Context) error
}

// effectFunc is a handler with its transaction.
type effectFunc func(ctx context.Context, tx transaction, msg *message.Message) error

// backend is the store of a worker and what comes with it.
type backend struct {
	store   stores.Store
	handler func(effectFunc) message.NoPublishHandlerFunc
	db      *sql.DB // for the variants that do without the store
	dialect dialect // of db
	worker  int     // whose it is
}

// dialect is what differs in SQL.
type dialect struct {
	placeholder func(query string) string // $1 as the driver wants it
	linger      string                    // a query that takes a while
	fail        string                    // see transaction.fail
	sequence    string                    // the column of effect that grows
	dueIn       string                    // SQL for the seconds until a failure f is due
	bytes       func(text string) string  // SQL for the bytes of a text
}

var (
	postgresDialect = dialect{
		placeholder: func(query string) string { return query },
		linger:      "SELECT count(pg_sleep(0.05))",
		fail:        "INSERT INTO taken VALUES (1)",
		sequence:    "seq",
		dueIn:       "coalesce(extract(epoch FROM f.due_at - now())::float8, 0)",
		bytes:       func(text string) string { return "convert_to(" + text + ", 'UTF8')" },
	}
	sqliteDialect = dialect{
		placeholder: func(query string) string { return strings.ReplaceAll(query, "$", "?") },
		linger:      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1500) SELECT count(*) FROM c",
		fail:        "INSERT OR ROLLBACK INTO taken VALUES (1)",
		sequence:    "rowid",
		dueIn:       "coalesce(f.due_at / 1e6 - unixepoch('subsec'), 0.0)",
		bytes:       func(text string) string { return "CAST(" + text + " AS blob)" },
	}
)

// openBackend opens the store of a URL. The server need not be up.
func openBackend(ctx context.Context, rawURL string) (*backend, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "sqlite" {
		return openSQLite(ctx, u.Path)
	}
	return openPostgres(ctx, rawURL)
}

func openPostgres(ctx context.Context, rawURL string) (*backend, error) {
	config, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Tracer = noLocalTime{}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		return nil, err
	}
	poolURL, _ := url.Parse(rawURL)
	query := poolURL.Query()
	query.Del("pool_max_conns")
	poolURL.RawQuery = query.Encode()
	db, err := sql.Open("pgx", poolURL.String())
	return &backend{
		store: store,
		handler: func(f effectFunc) message.NoPublishHandlerFunc {
			return postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
				return f(ctx, postgresTx{tx}, msg)
			})
		},
		db: db, dialect: postgresDialect,
	}, err
}

// openSQLite tries again while a stopped process keeps the file locked.
func openSQLite(ctx context.Context, path string) (*backend, error) {
	for {
		store, err := sqlite.New(ctx, path, sqlite.Config{BusyTimeout: 100 * time.Millisecond})
		if err == nil {
			db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(100)&_pragma=foreign_keys(1)")
			return &backend{
				store: store,
				handler: func(f effectFunc) message.NoPublishHandlerFunc {
					return sqlite.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
						return f(ctx, sqlTx{tx, sqliteDialect}, msg)
					})
				},
				db: db, dialect: sqliteDialect,
			}, err
		}
		if !errors.Is(err, stores.ErrUnavailable) || ctx.Err() != nil {
			return nil, err
		}
	}
}

type postgresTx struct{ pgx.Tx }

func (t postgresTx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.Exec(ctx, query, args...)
	return err
}

func (t postgresTx) finish(ctx context.Context, commit bool) error {
	if commit {
		return t.Commit(ctx)
	}
	return t.Rollback(ctx)
}

func (t postgresTx) linger(ctx context.Context) error { return t.exec(ctx, postgresDialect.linger) }

// detour reaches around the transaction, and uses it in a batch and in a savepoint.
func (t postgresTx) detour(ctx context.Context) error {
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
		if _, err := savepoint.Exec(ctx, "INSERT INTO effect VALUES ('nobody', 'savepoint', 1, '', '')"); err != nil {
			return err
		}
		return undone
	})
	if errors.Is(err, undone) {
		return nil
	}
	return fmt.Errorf("savepoint: %w", err)
}

func (t postgresTx) fail(ctx context.Context) error { return t.exec(ctx, postgresDialect.fail) }

// sqlTx is a transaction of database/sql.
type sqlTx struct {
	*sql.Tx
	dialect dialect
}

func (t sqlTx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.ExecContext(ctx, t.dialect.placeholder(query), args...)
	return err
}

func (t sqlTx) finish(_ context.Context, commit bool) error {
	if commit {
		return t.Commit()
	}
	return t.Rollback()
}

func (t sqlTx) linger(ctx context.Context) error {
	var n int
	return t.QueryRowContext(ctx, t.dialect.linger).Scan(&n)
}

// detour rolls back to a savepoint and leaves a setting behind.
func (t sqlTx) detour(ctx context.Context) error {
	for _, query := range []string{
		"PRAGMA cache_size = 1000",
		"SAVEPOINT detour",
		"INSERT INTO effect VALUES ('nobody', 'savepoint', 1, '', '')",
		"ROLLBACK TO detour",
		"RELEASE detour",
	} {
		if err := t.exec(ctx, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

func (t sqlTx) fail(ctx context.Context) error { return t.exec(ctx, t.dialect.fail) }
