package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	mysqlstore "github.com/millpond-go/millpond/stores/mysql"
)

const (
	noInboxPrepared  = "no inbox, prepared once"
	millpondBorrowed = "millpond, the caller's *sql.DB"
)

// mariadb is a server of MariaDB or MySQL with a database of the recipes.
type mariadb struct {
	server *mysql.Server
	url    string
	admin  *sql.DB
}

func startMariaDB(ctx context.Context, product mysql.Product) (*mariadb, error) {
	server, err := mysql.Start(ctx, mysql.Config{Product: product, Settings: map[string]string{
		"innodb_buffer_pool_size": "256M", "max_connections": "1000", // idle ones of all recipes stay open
	}})
	if err != nil {
		return nil, err
	}
	m := &mariadb{server: server}
	if m.url, err = mysql.CreateDatabase(ctx, server.URL()); err == nil {
		m.admin, err = mysql.Open(m.url)
	}
	for _, table := range []string{"CREATE TABLE effect (id varchar(64) NOT NULL, label text NOT NULL)", ownOutboxMySQL} {
		if err == nil {
			_, err = m.admin.ExecContext(ctx, table)
		}
	}
	if err == nil {
		err = m.migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return m, nil
}

func (m *mariadb) migrate(ctx context.Context) error {
	store, err := mysqlstore.Open(ctx, m.url)
	if err != nil {
		return err
	}
	_, err = store.Migrate(ctx)
	return errors.Join(err, store.Close())
}

func (m *mariadb) reset(ctx context.Context) error {
	for _, table := range []string{"effect", "own_outbox", "millpond_inbox", "millpond_failure", "millpond_outbox"} {
		if _, err := m.admin.ExecContext(ctx, "DELETE FROM "+table); err != nil { //nolint:gosec // the names are ours
			return fmt.Errorf("empty the tables: %w", err)
		}
	}
	return nil
}

// hadRoom is an error if the server has refused a connection: what was measured then is
// waiting.
func (m *mariadb) hadRoom(ctx context.Context) error {
	var (
		name    string
		refused int
	)
	if err := m.admin.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Connection_errors_max_connections'").Scan(&name, &refused); err != nil {
		return err
	}
	if refused > 0 {
		return fmt.Errorf("the server refused %d connections: raise max_connections", refused)
	}
	return nil
}

func (m *mariadb) close() error { return errors.Join(m.admin.Close(), m.server.Close()) }

// pool returns connections of a recipe's own.
func (m *mariadb) pool(workers int) (*sql.DB, error) {
	db, err := mysql.Open(m.url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(workers + 2)
	db.SetMaxIdleConns(workers + 2)
	return db, nil
}

const writeMySQL = "INSERT INTO effect (id, label) VALUES (?, ?)"

func writeTx(statement string) func(context.Context, *sql.Tx, *message.Message) error {
	return func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		_, err := tx.ExecContext(ctx, statement, msg.UUID, label)
		return err
	}
}

// withoutInbox is the handler without an inbox on database/sql: BEGIN, write, COMMIT.
func withoutInbox(db *sql.DB, statement string) *handling { return inTx(db, writeTx(statement)) }

func inTx(db *sql.DB, write func(context.Context, *sql.Tx, *message.Message) error) *handling {
	return &handling{close: db.Close, handler: func(msg *message.Message) error {
		ctx := msg.Context()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := write(ctx, tx, msg); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}}
}

// withInbox is the inbox around a handler.
func withInbox(store stores.Store, handler message.NoPublishHandlerFunc, end func() error) (*handling, error) {
	return behindInbox(store, middleware.InboxConfig{Service: serviceName}, handler, end)
}

func behindInbox(store stores.Store, c middleware.InboxConfig, handler message.NoPublishHandlerFunc, end func() error) (*handling, error) {
	inbox, err := middleware.NewInbox(store, c)
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return &handling{handler: handler, middleware: []message.HandlerMiddleware{inbox.Middleware}, close: end}, nil
}

func (m *mariadb) recipes() []recipe {
	return []recipe{
		{name: noInboxRouter, routed: true, open: func(_ context.Context, workers int) (*handling, error) {
			db, err := m.pool(workers)
			if err != nil {
				return nil, err
			}
			return withoutInbox(db, writeMySQL), nil
		}},
		{name: noInboxPrepared, against: noInboxRouter, routed: true, open: func(ctx context.Context, workers int) (*handling, error) {
			db, err := m.pool(workers)
			if err != nil {
				return nil, err
			}
			return preparedOnce(ctx, db)
		}},
		{name: millpondRouter, against: noInboxRouter, routed: true, open: func(ctx context.Context, workers int) (*handling, error) {
			store, err := mysqlstore.Open(ctx, m.url+"?max_open_conns="+strconv.Itoa(workers+2))
			if err != nil {
				return nil, err
			}
			return withInbox(store, mysqlstore.Handler(writeTx(writeMySQL)), store.Close)
		}},
		{name: millpondBorrowed, against: noInboxRouter, routed: true, open: func(_ context.Context, workers int) (*handling, error) {
			db, err := m.pool(workers)
			if err != nil {
				return nil, err
			}
			store, err := mysqlstore.New(db, mysqlstore.Config{})
			if err != nil {
				return nil, errors.Join(err, db.Close())
			}
			return withInbox(store, mysqlstore.Handler(writeTx(writeMySQL)), func() error { return errors.Join(store.Close(), db.Close()) })
		}},
	}
}

// onMariaDB measures groups on a server of their own.
func (r *report) onMariaDB(ctx context.Context, o options, of ...func(*mariadb) *group) error {
	return r.onOneOf(ctx, mysql.MariaDB, o, of...)
}

func (r *report) onOneOf(ctx context.Context, product mysql.Product, o options, of ...func(*mariadb) *group) (err error) {
	o.progress.Printf("Starting a server of %s", product)
	m, err := startMariaDB(ctx, product)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	defer func() { err = errors.Join(err, m.hadRoom(ctx)) }()
	for _, g := range of {
		if err := r.add(ctx, o, g(m)); err != nil {
			return err
		}
	}
	return nil
}

// measureMySQL measures the store on MariaDB.
func (r *report) measureMySQL(ctx context.Context, o options) error {
	return r.onMariaDB(ctx, o, func(m *mariadb) *group {
		return &group{
			name:  "mysql",
			title: "MariaDB: first sight of a message",
			about: "Every commit is flushed. All run under the same Watermill router, with go-sql-driver, which prepares, " +
				"executes and closes a statement with parameters for each call: a trip more than with one that the program has " +
				"prepared, or that the connections of stores/mysql keep prepared.",
			stayOpen: true,
			workers:  o.workers, recipes: m.recipes(), deliveries: newMessages, reset: m.reset, close: func() {},
		}
	}, (*mariadb).leases)
}
