package main

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	mysqlstore "github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	noInboxLean   = "no inbox, lean"
	leasedLean    = "lease, lean"
	noInboxEffect = "no inbox, effect of 20 ms"
	leasedEffect  = "lease, effect of 20 ms"
)

// outside is how long the effect takes that is not in the database.
const outside = 20 * time.Millisecond

const leasesAbout = "The handler makes an effect outside of the database, and then writes to it. Without an inbox that is a pause, BEGIN, " +
	"the write, COMMIT; a lease has its claim before, in a commit of its own. Lean ones make no effect: what is left is the inbox. No lease is renewed, and all run under a router."

func leaseRecipes(db *database, effect time.Duration) []recipe {
	plain := func(effect time.Duration) func(context.Context, int) (*handling, error) {
		return on(db, func(pool *pgxpool.Pool) message.NoPublishHandlerFunc { return after(effect, noInbox(pool)) })
	}
	return []recipe{
		{name: noInboxLean, routed: true, open: plain(0)},
		{name: leasedLean, against: noInboxLean, routed: true, open: leasedOn(db, 0)},
		{name: noInboxEffect, routed: true, open: plain(effect)},
		{name: leasedEffect, against: noInboxEffect, routed: true, open: leasedOn(db, effect)},
	}
}

// leases measures handlers under leases.
func leases(ctx context.Context, s *site, _ options) (*group, error) {
	g := &group{
		title: "PostgreSQL: leases", about: leasesAbout,
		workers: []int{goalWorkers}, recipes: leaseRecipes(s.used, outside),
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}
	var err error
	g.trips, err = countTrips(ctx, s.direct, func(db *database) []recipe { return leaseRecipes(db, 0) }, newMessages)
	return g, err
}

// after is a handler that makes an effect before.
func after(effect time.Duration, handler message.NoPublishHandlerFunc) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		pause.Sleep(msg.Context(), effect)
		return handler(msg)
	}
}

func leasedOn(db *database, effect time.Duration) func(context.Context, int) (*handling, error) {
	return func(ctx context.Context, workers int) (*handling, error) {
		store, err := db.store(ctx, workers)
		if err != nil {
			return nil, err
		}
		return underLease(store, postgres.Lease(makes(effect), func(ctx context.Context, tx pgx.Tx, msg *message.Message, _ struct{}) error {
			return write(ctx, tx, msg)
		}), store.Close)
	}
}

// makes is an effect without a result.
func makes(effect time.Duration) func(context.Context, *message.Message) (struct{}, error) {
	return func(ctx context.Context, _ *message.Message) (struct{}, error) {
		pause.Sleep(ctx, effect)
		return struct{}{}, nil
	}
}

// underLease is the inbox around a handler under a lease.
func underLease(store stores.Store, handler message.NoPublishHandlerFunc, end func() error) (*handling, error) {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: serviceName, LeaseByHandler: map[string]middleware.LeaseConfig{handlerName: {}},
	})
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return &handling{handler: handler, middleware: []message.HandlerMiddleware{inbox.Middleware}, close: end}, nil
}

// leases is the same on MariaDB.
func (m *mariadb) leases() *group {
	plain := func(effect time.Duration) func(context.Context, int) (*handling, error) {
		return func(_ context.Context, workers int) (*handling, error) {
			db, err := m.pool(workers)
			if err != nil {
				return nil, err
			}
			h := withoutInbox(db, writeMySQL)
			h.handler = after(effect, h.handler)
			return h, nil
		}
	}
	leased := func(effect time.Duration) func(context.Context, int) (*handling, error) {
		return func(ctx context.Context, workers int) (*handling, error) {
			store, err := mysqlstore.Open(ctx, m.url+"?max_open_conns="+strconv.Itoa(workers+2))
			if err != nil {
				return nil, err
			}
			return underLease(store, mysqlstore.Lease(makes(effect), func(ctx context.Context, tx *sql.Tx, msg *message.Message, _ struct{}) error {
				return writeTx(writeMySQL)(ctx, tx, msg)
			}), store.Close)
		}
	}
	return &group{
		name: "mysql-leases", title: "MariaDB: leases", about: leasesAbout, stayOpen: true,
		workers: []int{goalWorkers}, deliveries: newMessages, reset: m.reset, close: func() {},
		recipes: []recipe{
			{name: noInboxLean, routed: true, open: plain(0)},
			{name: leasedLean, against: noInboxLean, routed: true, open: leased(0)},
			{name: noInboxEffect, routed: true, open: plain(outside)},
			{name: leasedEffect, against: noInboxEffect, routed: true, open: leased(outside)},
		},
	}
}
