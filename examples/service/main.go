// A service on PostgreSQL and Kafka, from the file millpond.yaml beside it. Its orders come
// from producers that do not use Watermill. docs/tutorials/postgres-kafka.md goes through it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	_ "github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores/postgres"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	svc, err := router.Load(ctx, "millpond.yaml") // opens broker and store
	if err != nil {
		return err
	}
	if err := createStock(ctx, svc); err != nil {
		return err
	}
	svc.Handle("stock", "orders", postgres.Handler(deduct))
	return svc.Run(ctx) // until SIGTERM, Ctrl-C, or the end of ctx
}

func deduct(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
	var order struct {
		Item string `json:"item"`
	}
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return middleware.Permanent(err) // it will not be readable later either
	}
	tag, err := tx.Exec(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = $1", order.Item)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("there is no item %q", order.Item)
	}
	return err
}

// createStock makes the table of the handler. A real service has migrations of its own.
func createStock(ctx context.Context, svc *router.Service) error {
	store, ok := svc.Store().(*postgres.Store)
	if !ok {
		return fmt.Errorf("this service is for PostgreSQL, not for a %T", svc.Store())
	}
	_, err := store.Pool().Exec(ctx, `CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, pieces int);
		INSERT INTO stock VALUES ('cup', 10) ON CONFLICT DO NOTHING`)
	return err
}
