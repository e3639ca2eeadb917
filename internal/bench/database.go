package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/stores/postgres"
)

// database is a PostgreSQL database with the tables of all recipes.
type database struct {
	url string

	mu    sync.Mutex
	pools map[int]*pgxpool.Pool
	other *database
}

// The tables of the recipes other than millpond. The domain's table is as lean as
// one can be, so that an inbox weighs as much as it can.
const schema = `
CREATE TABLE effect (id text NOT NULL, label text NOT NULL);

CREATE TABLE article (id text PRIMARY KEY, price bigint NOT NULL);
INSERT INTO article SELECT lpad(to_hex(n), 2, '0'), n FROM generate_series(0, 255) n;

CREATE TABLE processed (
    consumer     text NOT NULL,
    message_id   text NOT NULL,
    processed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, message_id)
);

CREATE TABLE received (
    consumer     text NOT NULL,
    message_id   text NOT NULL,
    payload      text NOT NULL,
    status       text NOT NULL,
    result       text,
    received_at  timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX ON received (status, received_at);
`

// newDatabase creates a database with all tables.
func newDatabase(ctx context.Context, s *server) (*database, error) {
	url, err := s.NewDatabase(ctx)
	if err != nil {
		return nil, err
	}
	db := at(url)
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, schema+ownOutbox); err != nil {
		return nil, fmt.Errorf("create the tables: %w", err)
	}
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		return nil, err
	}
	if _, err := store.Migrate(ctx); err != nil {
		return nil, err
	}
	return db, nil
}

// at returns a database that exists.
func at(url string) *database {
	return &database{url: url, pools: make(map[int]*pgxpool.Pool)}
}

// spareConnections are what a recipe needs beside those of its workers.
const spareConnections = 2

// pool returns the connections that all recipes with this many workers share.
func (db *database) pool(ctx context.Context, workers int) (*pgxpool.Pool, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if pool := db.pools[workers]; pool != nil {
		return pool, nil
	}
	config, err := pgxpool.ParseConfig(db.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(workers) + spareConnections //nolint:gosec // small
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	db.pools[workers] = pool
	return pool, nil
}

// store returns a store on those connections, which knows that its tables fit.
func (db *database) store(ctx context.Context, workers int) (*postgres.Store, error) {
	pool, err := db.pool(ctx, workers)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(pool, postgres.Config{})
	if err == nil {
		err = store.Validate(ctx)
	}
	return store, err
}

// twin returns the same database with connections of its own, as another process has.
func (db *database) twin() *database {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.other == nil {
		db.other = at(db.url)
	}
	return db.other
}

// truncate empties all tables that a message is written to.
func (db *database) truncate(ctx context.Context) error {
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "TRUNCATE effect, own_outbox, processed, received, millpond_inbox, millpond_failure, millpond_outbox")
	return err
}

func (db *database) close() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.other != nil {
		db.other.close()
	}
	for workers, pool := range db.pools {
		pool.Close()
		delete(db.pools, workers)
	}
}
