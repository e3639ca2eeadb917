package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A handler writes in the transaction of its message's claim. What the inbox middleware
// does around it is done by hand here.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err == nil {
		err = receiveOrder(context.Background(), filepath.Join(dir, "stock.db"))
		_ = os.RemoveAll(dir)
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// claimed
	// duplicate
	// duplicate
	// left: 9
}

func receiveOrder(ctx context.Context, path string) error {
	store, err := sqlite.Open(ctx, "sqlite://"+path)
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = store.DB().ExecContext(ctx, "CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER); INSERT INTO stock VALUES ('cup', 10)")
	if err != nil {
		return err
	}
	deduct := sqlite.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = ?", string(msg.Payload))
		return err
	})

	consumer := stores.Consumer{Service: "inventory", Handler: "deduct"}
	if err := store.Register(ctx, stores.Registration{Consumer: consumer, Topic: "orders"}); err != nil {
		return err
	}
	for range 3 { // the broker delivers the order three times
		attempt, verdict, err := store.Begin(ctx, stores.Claim{Key: stores.Key{Consumer: consumer, ID: []byte("order-1")}})
		if err != nil {
			return err
		}
		fmt.Println(verdict.Outcome)
		if verdict.Outcome != stores.Claimed {
			continue
		}
		msg := message.NewMessage("order-1", []byte("cup"))
		msg.SetContext(attempt.Context(ctx))
		if err := deduct(msg); err != nil {
			return errors.Join(err, attempt.Rollback(ctx))
		}
		if err := attempt.Commit(ctx); err != nil {
			return err
		}
	}
	var pieces int
	if err := store.DB().QueryRowContext(ctx, "SELECT pieces FROM stock").Scan(&pieces); err != nil {
		return err
	}
	fmt.Println("left:", pieces)
	return nil
}
