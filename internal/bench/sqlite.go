package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // for database/sql

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// onSQLite compares on files below dir, a new one for each cell.
func onSQLite(dir string, workers []int) *group {
	return &group{
		name:  "sqlite",
		title: "SQLite: first sight of a message, every commit flushed",
		about: "Both sides have one connection that writes, with journal_mode=WAL and synchronous=FULL, " +
			"and run under the same Watermill router. The retry worker runs parked messages, all due, with a handler that does nothing.",
		workers: slices.DeleteFunc(slices.Clone(workers), func(w int) bool { return w > goalWorkers }),
		recipes: []recipe{
			{name: noInboxRouter, routed: true, open: inFile(dir, sqliteWithout)},
			{name: millpondRouter, against: noInboxRouter, routed: true, open: inFile(dir, sqliteMillpond)},
			{name: retryWorker, job: sqliteRetry(dir)},
		},
		deliveries: newMessages,
		close:      func() {},
	}
}

// Names of recipes.
const (
	sqliteOwn    = "inbox"
	sqliteShared = "batches"
)

// batchesOnSQLite compares messages that share commits with those that have each their own.
func batchesOnSQLite(dir string, o options) *group {
	return &group{
		name:  "batches-sqlite",
		title: "SQLite: messages that share transactions, every commit flushed",
		about: "Both are called directly, without a router, with journal_mode=WAL and synchronous=FULL. Workers are messages in flight. " +
			"Batches begin at two messages in flight.",
		workers: batchWorkers(o),
		recipes: []recipe{
			{name: sqliteOwn, open: inFile(dir, sqliteInbox(nil))},
			{name: sqliteShared, against: sqliteOwn, open: inFile(dir, sqliteInbox(map[string]middleware.BatchConfig{handlerName: {From: 2}}))},
		},
		deliveries: newMessages,
		close:      func() {},
	}
}

const sqliteSchema = "CREATE TABLE effect (id TEXT NOT NULL, label TEXT NOT NULL) STRICT"

// inFile gives a recipe a file of its own, which goes with it.
func inFile(dir string, open func(ctx context.Context, file string) (*handling, error)) func(context.Context, int) (*handling, error) {
	return func(ctx context.Context, _ int) (*handling, error) {
		dir, err := os.MkdirTemp(dir, "sqlite-")
		if err != nil {
			return nil, err
		}
		h, err := open(ctx, filepath.Join(dir, "bench.db"))
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		closeStore := h.close
		h.close = func() error { return errors.Join(closeStore(), os.RemoveAll(dir)) }
		return h, nil
	}
}

func writeSQLite(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	_, err := tx.ExecContext(ctx, writeEffect, msg.UUID, label)
	return err
}

// sqliteWithout is the handler without an inbox: BEGIN IMMEDIATE, write, COMMIT.
func sqliteWithout(ctx context.Context, file string) (*handling, error) {
	query := url.Values{
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)"},
	}
	db, err := sql.Open("sqlite", "file://"+(&url.URL{Path: file}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, sqliteSchema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	handler := func(msg *message.Message) error {
		ctx := msg.Context()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := writeSQLite(ctx, tx, msg); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	return &handling{handler: handler, close: db.Close}, nil
}

// sqliteRetry is a retry worker with an empty handler, on a file of its own.
func sqliteRetry(dir string) func(context.Context, int, int) (*job, error) {
	return func(ctx context.Context, workers, n int) (*job, error) {
		dir, err := os.MkdirTemp(dir, "sqlite-")
		if err != nil {
			return nil, err
		}
		store, err := sqlite.New(ctx, filepath.Join(dir, "bench.db"), sqlite.Config{AutoMigrate: true})
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		r := &retried{runs: make([]atomic.Int32, n), stores: []stores.Store{store}}
		j, err := r.job(ctx, workers, sqlite.Handler(func(_ context.Context, _ *sql.Tx, msg *message.Message) error { return r.note(msg) }))
		if err != nil {
			return nil, errors.Join(err, store.Close(), os.RemoveAll(dir))
		}
		closeJob := j.close
		j.close = func() error { return errors.Join(closeJob(), os.RemoveAll(dir)) }
		return j, nil
	}
}

func sqliteMillpond(ctx context.Context, file string) (*handling, error) {
	return openSQLite(ctx, file, middleware.InboxConfig{Service: serviceName})
}

// sqliteInbox opens an inbox without a router.
func sqliteInbox(batches map[string]middleware.BatchConfig) func(context.Context, string) (*handling, error) {
	return func(ctx context.Context, file string) (*handling, error) {
		return openSQLite(ctx, file, middleware.InboxConfig{Service: serviceName, Handler: handlerName, BatchByHandler: batches})
	}
}

func openSQLite(ctx context.Context, file string, c middleware.InboxConfig) (*handling, error) {
	store, err := sqlite.New(ctx, file, sqlite.Config{AutoMigrate: true})
	if err != nil {
		return nil, err
	}
	if _, err := store.DB().ExecContext(ctx, sqliteSchema); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	inbox, err := middleware.NewInbox(store, c)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &handling{
		handler:    sqlite.Handler(writeSQLite),
		middleware: []message.HandlerMiddleware{inbox.Middleware},
		close:      store.Close,
	}, nil
}
