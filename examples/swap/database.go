package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/examples/internal/rows"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/dynamodb"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// database is where stock and reservations are.
type database interface {
	// handler is the service's.
	handler(w *warehouse) message.NoPublishHandlerFunc
	prepare(ctx context.Context) error
	read(ctx context.Context, b *books) error
	// remove leaves nothing behind of what is not in the temporary directory.
	remove(ctx context.Context) error
}

// fresh lets a store begin empty, so that nothing of an earlier run is in the way.
func fresh(storeURL router.URL, dir string) (router.URL, error) {
	u, err := url.Parse(storeURL.Reveal())
	if err != nil {
		return storeURL, fmt.Errorf("store.url cannot be parsed: %w", err)
	}
	if u.Scheme != dynamodb.Scheme {
		return router.NewURL("sqlite://" + (&url.URL{Path: filepath.Join(dir, "warehouse.db")}).EscapedPath()), nil
	}
	query := u.Query()
	query.Set("prefix", "swap-"+uuid.NewString()+"_")
	u.RawQuery = query.Encode()
	return router.NewURL(u.String()), nil
}

// databaseOf is the part of a database that this example brings along for its store.
func databaseOf(store stores.Store, storeURL router.URL) (database, error) {
	switch s := store.(type) {
	case *sqlite.Store:
		return inSQLite{s.DB()}, nil
	case *dynamodb.Store:
		u, err := url.Parse(storeURL.Reveal())
		if err != nil {
			return nil, err
		}
		return inDynamoDB{s.Client(), u.Query().Get("prefix")}, nil
	}
	return nil, fmt.Errorf("store.url is of %T: this example is written for SQLite and DynamoDB", store)
}

// inSQLite has the tables of service.go.
type inSQLite struct{ db *sql.DB }

func (inSQLite) handler(w *warehouse) message.NoPublishHandlerFunc { return sqlite.Handler(w.reserve) }

func (s inSQLite) prepare(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return err
	}
	for _, article := range articles {
		if _, err := s.db.ExecContext(ctx, `INSERT INTO stock (article, quantity) VALUES (?, ?)`, article, openingStock); err != nil {
			return err
		}
	}
	return nil
}

func (s inSQLite) read(ctx context.Context, b *books) error {
	err := rows.Each(ctx, s.db, `SELECT order_id, article, quantity FROM reservation`, func(found *sql.Rows) error {
		var o order
		err := found.Scan(&o.ID, &o.Article, &o.Quantity)
		b.reserved[o.ID] = append(b.reserved[o.ID], o)
		return err
	})
	if err != nil {
		return err
	}
	return rows.Each(ctx, s.db, `SELECT article, quantity FROM stock`, func(found *sql.Rows) error {
		var article string
		var quantity int64
		err := found.Scan(&article, &quantity)
		b.stock[article] = quantity
		return err
	})
}

func (inSQLite) remove(context.Context) error { return nil }
