package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	mysqlstore "github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	withoutOutput = "no output"
	withOutput    = "one output"
	ownOutboxRow  = "the handler's own outbox row"
)

// outputTopic is where outputs of handlers go.
const outputTopic = "shipments"

// ownOutbox is the table of handlers that write their outbox themselves, as such tables are.
const (
	ownOutbox = `CREATE TABLE own_outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    topic      text  NOT NULL,
    message_id text  NOT NULL,
    metadata   bytea NOT NULL,
    payload    bytea NOT NULL
)`
	ownOutboxMySQL = `CREATE TABLE own_outbox (
    id         bigint AUTO_INCREMENT PRIMARY KEY,
    created_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    topic      varchar(255) NOT NULL,
    message_id varchar(64)  NOT NULL,
    metadata   blob NOT NULL,
    payload    mediumblob NOT NULL
)`
	writeOwnRow      = "INSERT INTO own_outbox (topic, message_id, metadata, payload) VALUES ($1, $2, $3, $4)"
	writeOwnRowMySQL = "INSERT INTO own_outbox (topic, message_id, metadata, payload) VALUES (?, ?, ?, ?)"
)

// ownRow are the values of such a row, with the metadata that an output has.
func ownRow(msg *message.Message) []any {
	metadata := fmt.Appendf(nil, `{"content_type":"application/json","correlation_id":%q,"causation_id":%q}`, msg.UUID, msg.UUID)
	return []any{outputTopic, uuid.NewString(), metadata, []byte(msg.Payload)}
}

// say publishes what a handler says: an output like the message that it was given.
func say(msg *message.Message) error {
	said := message.NewMessageWithContext(msg.Context(), uuid.NewString(), msg.Payload)
	said.Metadata.Set("content_type", "application/json")
	return outbox.Publisher("").Publish(outputTopic, said)
}

func outputRecipes(db *database) []recipe {
	on := func(handler func(context.Context, pgx.Tx, *message.Message) error) func(context.Context, int) (*handling, error) {
		return func(ctx context.Context, workers int) (*handling, error) {
			store, err := db.store(ctx, workers)
			if err != nil {
				return nil, err
			}
			return withOutputs(store, postgres.Handler(handler), store.Close)
		}
	}
	return []recipe{
		{name: withoutOutput, routed: true, open: on(write)},
		{name: withOutput, against: withoutOutput, routed: true, open: on(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
			return errors.Join(write(ctx, tx, msg), say(msg))
		})},
		{name: ownOutboxRow, against: withoutOutput, routed: true, open: on(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
			if err := write(ctx, tx, msg); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, writeOwnRow, ownRow(msg)...)
			return err
		})},
	}
}

const outputsAbout = "All are behind the same inbox, under the same Watermill router, and write the same row. " +
	"One says a message of about 490 bytes to an outbox.Publisher besides, one inserts it into a table of its own. No relay runs."

// outputs measures what it costs a handler to say something.
func outputs(ctx context.Context, s *site, o options) (*group, error) {
	g := &group{
		title: "PostgreSQL: outputs of handlers", about: outputsAbout,
		workers: o.workers, recipes: outputRecipes(s.used),
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}
	var err error
	g.trips, err = countTrips(ctx, s.direct, outputRecipes, newMessages)
	return g, err
}

// withOutputs is the inbox around a handler that may say something.
func withOutputs(store stores.Store, handler message.NoPublishHandlerFunc, end func() error) (*handling, error) {
	return behindInbox(store, middleware.InboxConfig{Service: serviceName, Outputs: &middleware.Outputs{}}, handler, end)
}

func (m *mariadb) outputRecipes() []recipe {
	on := func(handler func(context.Context, *sql.Tx, *message.Message) error) func(context.Context, int) (*handling, error) {
		return func(ctx context.Context, workers int) (*handling, error) {
			store, err := mysqlstore.Open(ctx, m.url+"?max_open_conns="+strconv.Itoa(workers+2))
			if err != nil {
				return nil, err
			}
			return withOutputs(store, mysqlstore.Handler(handler), store.Close)
		}
	}
	write := writeTx(writeMySQL)
	return []recipe{
		{name: withoutOutput, routed: true, open: on(write)},
		{name: withOutput, against: withoutOutput, routed: true, open: on(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			return errors.Join(write(ctx, tx, msg), say(msg))
		})},
		{name: ownOutboxRow, against: withoutOutput, routed: true, open: on(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			if err := write(ctx, tx, msg); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, writeOwnRowMySQL, ownRow(msg)...)
			return err
		})},
	}
}

// measureOutputsMySQL measures the same on MariaDB.
func (r *report) measureOutputsMySQL(ctx context.Context, o options) error {
	return r.onMariaDB(ctx, o, func(m *mariadb) *group {
		return &group{
			name:  "outputs-mysql",
			title: "MariaDB: outputs of handlers", about: outputsAbout + " Connections are the store's own.",
			stayOpen: true, workers: o.workers, recipes: m.outputRecipes(), deliveries: newMessages, reset: m.reset, close: func() {},
		}
	})
}
