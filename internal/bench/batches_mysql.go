package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/middleware"
	mysqlstore "github.com/millpond-go/millpond/stores/mysql"
)

const leanPrepared = "no inbox, prepared once, 4 connections"

// ofMySQL are the products on which batches are measured.
var ofMySQL = []struct {
	product    mysql.Product
	name, also string
}{
	{mysql.MariaDB, "MariaDB", " The connections of stores/mysql keep the handler's statement prepared."},
	{mysql.MySQL, "MySQL", ""},
}

// measureBatchesMySQL measures messages that share transactions on MariaDB and MySQL.
func (r *report) measureBatchesMySQL(ctx context.Context, o options) error {
	for _, of := range ofMySQL {
		err := r.onOneOf(ctx, of.product, o, func(m *mariadb) *group {
			return &group{
				name:  "batches-" + string(of.product),
				title: of.name + ": messages that share transactions",
				about: fmt.Sprintf("All are called directly, without a router, with go-sql-driver and every commit flushed. Workers are messages in flight. "+
					"Each recipe has %d connections, which is how many batches run at a time, and is compared with the same handler without an inbox.%s", batchConnections, of.also),
				workers: batchWorkers(o), recipes: m.batchRecipes(), stayOpen: true,
				deliveries: newMessages, reset: m.reset, close: func() {},
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mariadb) batchRecipes() []recipe {
	const connections = batchConnections - spareConnections
	return []recipe{
		{name: leanAlone, open: func(context.Context, int) (*handling, error) {
			db, err := m.pool(connections)
			if err != nil {
				return nil, err
			}
			return withoutInbox(db, writeMySQL), nil
		}},
		{name: leanPrepared, against: leanAlone, open: func(ctx context.Context, _ int) (*handling, error) {
			db, err := m.pool(connections)
			if err != nil {
				return nil, err
			}
			return preparedOnce(ctx, db)
		}},
		{name: leanInbox, against: leanAlone, open: m.inbox(false)},
		{name: leanBatches, against: leanAlone, open: m.inbox(true)},
	}
}

// preparedOnce is the handler without an inbox, with a statement that the program has prepared.
func preparedOnce(ctx context.Context, db *sql.DB) (*handling, error) {
	prepared, err := db.PrepareContext(ctx, writeMySQL)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return inTx(db, func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		_, err := tx.StmtContext(ctx, prepared).ExecContext(ctx, msg.UUID, label) //nolint:sqlclosecheck // the transaction does
		return err
	}), nil
}

func (m *mariadb) inbox(batches bool) func(context.Context, int) (*handling, error) {
	return func(ctx context.Context, _ int) (*handling, error) {
		store, err := mysqlstore.Open(ctx, m.url+"?max_open_conns="+strconv.Itoa(batchConnections))
		if err != nil {
			return nil, err
		}
		c := middleware.InboxConfig{Service: serviceName, Handler: handlerName, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))} //nolint:sloglint // as in programs, which write lines
		if batches {
			c.BatchByHandler = map[string]middleware.BatchConfig{handlerName: {}}
		}
		return behindInbox(store, c, mysqlstore.Handler(writeTx(writeMySQL)), store.Close)
	}
}
