package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millpond-go/millpond/examples/internal/earlier"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// database is one of the two that the service runs on.
type database struct {
	store stores.Store
	db    *sql.DB // for what is not done by handlers: preparing, and checking at the end
	url   string  // for the command millpond
	where string  // for people
	close func() error

	// handler makes a handler of a function that takes either database's transaction.
	handler func(func(context.Context, tx, *message.Message) error) message.NoPublishHandlerFunc
}

// prepareDatabase opens the database with all tables in place and nothing in them.
func prepareDatabase(ctx context.Context, o options) (*database, error) {
	open := openSQLite
	if o.store != "" {
		open = openPostgres
	}
	d, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	if _, err = d.store.Migrate(ctx); err == nil {
		_, err = d.db.ExecContext(ctx, schema)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func openSQLite(ctx context.Context, o options) (*database, error) {
	path, err := filepath.Abs(o.db)
	if err != nil {
		return nil, err
	}
	if err := earlier.Remove(ctx, path, "charge"); err != nil {
		return nil, fmt.Errorf("--db %s: %w", o.db, err)
	}
	store, err := sqlite.New(ctx, path, sqlite.Config{})
	if err != nil {
		return nil, err
	}
	return &database{
		store: store, db: store.DB(), close: store.Close,
		url:   "sqlite://" + (&url.URL{Path: path}).EscapedPath(),
		where: "SQLite",
		handler: func(f func(context.Context, tx, *message.Message) error) message.NoPublishHandlerFunc {
			return sqlite.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error { return f(ctx, sqlTx{tx}, msg) })
		},
	}, nil
}

// postgresSchema is where all tables are, so that a database can be used that holds
// others.
const postgresSchema = "millpond_failures_example"

func openPostgres(ctx context.Context, o options) (*database, error) {
	u, err := url.Parse(o.store)
	if err != nil {
		return nil, errors.New("--store: the URL is not valid: write postgres://user@host/database")
	}
	query := u.Query()
	query.Set("search_path", postgresSchema)
	u.RawQuery = query.Encode()
	c, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, errors.New("--store: the URL is not valid: write postgres://user@host/database")
	}
	c.MaxConns = 2 * inFlight // deliveries and retries, and the program's own questions
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := createSchema(ctx, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("--store: %w", err)
	}
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		pool.Close()
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	return &database{
		store: store, db: db, url: u.String(), where: "PostgreSQL",
		close: func() error {
			err := errors.Join(store.Close(), db.Close())
			pool.Close()
			return err
		},
		handler: func(f func(context.Context, tx, *message.Message) error) message.NoPublishHandlerFunc {
			return postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error { return f(ctx, pgxTx{tx}, msg) })
		},
	}, nil
}

// createSchema creates the schema anew.
func createSchema(ctx context.Context, pool *pgxpool.Pool) error {
	var tables, ours int
	err := pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE tablename = 'charge') FROM pg_tables WHERE schemaname = $1`,
		postgresSchema).Scan(&tables, &ours)
	switch {
	case err != nil:
		return err
	case tables > 0 && ours == 0:
		return fmt.Errorf("schema %s: %w", postgresSchema, earlier.ErrForeign)
	}
	if _, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+postgresSchema+" CASCADE"); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "CREATE SCHEMA "+postgresSchema)
	return err
}

// tx is what the handler needs of a transaction, so that it is written once. A service
// with one database uses its driver's own.
type tx interface {
	exec(ctx context.Context, query string, args ...any) (changed int64, err error)
	read(ctx context.Context, dest any, query string, args ...any) error
}

type sqlTx struct{ *sql.Tx }

func (t sqlTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t sqlTx) read(ctx context.Context, dest any, query string, args ...any) error {
	return t.QueryRowContext(ctx, query, args...).Scan(dest)
}

type pgxTx struct{ pgx.Tx }

func (t pgxTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

func (t pgxTx) read(ctx context.Context, dest any, query string, args ...any) error {
	return t.QueryRow(ctx, query, args...).Scan(dest)
}
