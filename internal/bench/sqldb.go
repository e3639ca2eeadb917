package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strconv"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// Names of recipes.
const (
	noInboxSQL       = "no inbox, database/sql"
	millpondSQL      = "millpond, database/sql"
	millpondSQLOther = "millpond, the caller's *sql.DB"
)

// databaseSQL compares the two ways to PostgreSQL through database/sql with the store on
// pgx.
func databaseSQL(_ context.Context, s *site, o options) (*group, error) {
	pooled := func(workers int) (string, error) {
		u, err := url.Parse(s.used.url)
		if err != nil {
			return "", err
		}
		query := u.Query()
		query.Set("pool_max_conns", strconv.Itoa(workers+2))
		u.RawQuery = query.Encode()
		u.Scheme = "postgres+sql"
		return u.String(), nil
	}
	open := func(ctx context.Context, workers int) (*sqldb.Store, error) {
		address, err := pooled(workers)
		if err != nil {
			return nil, err
		}
		return sqldb.Open(ctx, address)
	}
	return &group{
		title: "PostgreSQL through database/sql: first sight of a message",
		about: "All run under the same Watermill router. \"" + millpondSQL + "\" is on connections that the store opens, " +
			"\"" + millpondSQLOther + "\" on a database handle of the program with pgx beneath, which takes a round trip more.",
		stayOpen: true,
		workers:  o.workers,
		recipes: []recipe{
			{name: millpondRouter, routed: true, open: millpond(s.used, 0)},
			{name: millpondSQL, against: millpondRouter, routed: true, open: func(ctx context.Context, workers int) (*handling, error) {
				store, err := open(ctx, workers)
				if err != nil {
					return nil, err
				}
				return withInbox(store, sqldb.Handler(writeTx(writeEffect)), store.Close)
			}},
			{name: millpondSQLOther, against: millpondRouter, routed: true, open: func(_ context.Context, workers int) (*handling, error) {
				db, err := sql.Open("pgx", s.used.url)
				if err != nil {
					return nil, err
				}
				db.SetMaxOpenConns(workers + 2)
				db.SetMaxIdleConns(workers + 2)
				store, err := sqldb.New(db, sqldb.Config{})
				if err != nil {
					return nil, errors.Join(err, db.Close())
				}
				return withInbox(store, sqldb.Handler(writeTx(writeEffect)), func() error { return errors.Join(store.Close(), db.Close()) })
			}},
		},
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}, nil
}
