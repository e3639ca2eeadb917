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
type database interface {
	Store() stores.Store
	DB() *sql.DB    // for what is not done by handlers: preparing, and checking at the end
	String() string // where it is

	deductOnce(*message.Message) error    // the handler, for behind the inbox
	deductPlainly(*message.Message) error // the same without one

	Close() error
}

// openDatabase opens the database that the options name. It does not create tables.
func openDatabase(ctx context.Context, o options) (database, error) {
	if o.store != "" {
		return openPostgres(ctx, o)
	}
	return openSQLite(ctx, o)
}

// prepareDatabase opens the database with all tables in place, empty if it is to be
// fresh.
func prepareDatabase(ctx context.Context, o options) (database, error) {
	if o.fresh && o.store == "" {
		if err := earlier.Remove(ctx, o.db, "deduction"); err != nil {
			return nil, fmt.Errorf("--fresh: %s: %w", o.db, err)
		}
	}
	db, err := openDatabase(ctx, o)
	if err != nil {
		return nil, err
	}
	if p, ok := db.(*postgresDatabase); ok {
		err = p.createSchema(ctx, o.fresh)
	}
	if err == nil {
		_, err = db.Store().Migrate(ctx)
	}
	if err == nil {
		_, err = db.DB().ExecContext(ctx, schema)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

type sqliteDatabase struct {
	store *sqlite.Store
	path  string
}

func openSQLite(ctx context.Context, o options) (*sqliteDatabase, error) {
	path, err := filepath.Abs(o.db)
	if err != nil {
		return nil, err
	}
	store, err := sqlite.New(ctx, path, sqlite.Config{})
	if err != nil {
		return nil, err
	}
	return &sqliteDatabase{store, path}, nil
}

func (d *sqliteDatabase) Store() stores.Store { return d.store }
func (d *sqliteDatabase) DB() *sql.DB         { return d.store.DB() }
func (d *sqliteDatabase) String() string      { return "SQLite, " + d.path }
func (d *sqliteDatabase) Close() error        { return d.store.Close() }

func (d *sqliteDatabase) deductOnce(msg *message.Message) error {
	return sqlite.Handler(deductSQLite)(msg)
}

// postgresDatabase keeps all tables in a schema of its own.
type postgresDatabase struct {
	store  *postgres.Store
	pool   *pgxpool.Pool
	db     *sql.DB
	where  string
	schema string
}

func openPostgres(ctx context.Context, o options) (*postgresDatabase, error) {
	c, err := pgxpool.ParseConfig(o.store)
	if err != nil {
		return nil, errors.New("--store: the URL is not valid: write postgres://user@host/database")
	}
	d := &postgresDatabase{schema: "quickstart"}
	if o.withoutInbox {
		d.schema = "quickstart_without_inbox"
	}
	c.ConnConfig.RuntimeParams["search_path"] = d.schema
	c.MaxConns = inFlight + 2
	d.pool, err = pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := d.pool.Ping(ctx); err != nil {
		d.pool.Close()
		return nil, fmt.Errorf("--store: cannot connect to %s: %w", c.ConnConfig.Host, err)
	}
	d.store, err = postgres.New(d.pool, postgres.Config{})
	if err != nil {
		d.pool.Close()
		return nil, err
	}
	d.db = stdlib.OpenDBFromPool(d.pool)
	d.where = "PostgreSQL, schema " + d.schema
	if u, err := url.Parse(o.store); err == nil {
		d.where += " of " + u.Redacted()
	}
	return d, nil
}

func (d *postgresDatabase) Store() stores.Store { return d.store }
func (d *postgresDatabase) DB() *sql.DB         { return d.db }
func (d *postgresDatabase) String() string      { return d.where }

func (d *postgresDatabase) deductOnce(msg *message.Message) error {
	return postgres.Handler(deductPostgres)(msg)
}

// createSchema creates the schema, anew if fresh.
func (d *postgresDatabase) createSchema(ctx context.Context, fresh bool) error {
	name := pgx.Identifier{d.schema}.Sanitize()
	if fresh {
		if _, err := d.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+name+" CASCADE"); err != nil {
			return err
		}
	}
	_, err := d.pool.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+name)
	return err
}

func (d *postgresDatabase) Close() error {
	err := d.db.Close()
	d.pool.Close()
	return err
}
