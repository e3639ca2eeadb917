package router_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	_ "github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A service on the memory broker and SQLite gets an order twice and reserves it once.
func Example_service() {
	dir, err := os.MkdirTemp("", "millpond-")
	if err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(dir, "millpond.yaml")
	if err := os.WriteFile(file, []byte(`
service: warehouse
broker:
  url: memory://
store:
  url: sqlite://`+dir+`/warehouse.db
log:
  level: error
`), 0o600); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())

	svc, err := router.Load(ctx, file)
	if err != nil {
		log.Fatal(err)
	}
	svc.Handle("stock", "orders", sqlite.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		_, err := tx.ExecContext(ctx, `UPDATE stock SET n = n - 1 WHERE item = ?`, string(msg.Payload))
		return err
	}))
	svc.Handle("report", "done", func(*message.Message) error {
		stop() // everything before it is done, too
		return nil
	})

	db, err := sql.Open("sqlite", filepath.Join(dir, "warehouse.db"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE stock (item TEXT, n INTEGER); INSERT INTO stock VALUES ('pears', 10)`); err != nil {
		log.Fatal(err)
	}
	go func() {
		order := message.NewMessage("order-1", []byte("pears"))
		_ = svc.Publisher().Publish("orders", order, order)
		awaitStock(db, 9)
		_ = svc.Publisher().Publish("done", message.NewMessage("done", nil))
	}()

	if err := svc.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("pears left:", stock(db))
	_ = db.Close()
	_ = os.RemoveAll(dir)
	// Output: pears left: 9
}

func stock(db *sql.DB) (n int) {
	_ = db.QueryRow(`SELECT n FROM stock`).Scan(&n)
	return n
}

func awaitStock(db *sql.DB, n int) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for stock(db) != n {
		<-ticker.C
	}
}

// A service on PostgreSQL; which broker it reads from, millpond.yaml says.
func ExampleService_Handle() {
	ctx := context.Background()
	svc, err := router.Load(ctx, "millpond.yaml")
	if err != nil {
		log.Fatal(err)
	}
	svc.Handle("stock", "orders", postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		_, err := tx.Exec(ctx, `UPDATE stock SET n = n - 1 WHERE item = $1`, string(msg.Payload))
		return err
	}))
	if err := svc.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// What a file cannot say is added to what it says.
func ExampleNew() {
	ctx := context.Background()
	config, err := router.LoadConfig("millpond.yaml")
	if err != nil {
		log.Fatal(err)
	}
	config.Inbox.Keep.Codec = &middleware.Codec{Name: "hidden", Encode: func(_ context.Context, kept middleware.Kept) (middleware.Kept, error) {
		return middleware.Kept{Metadata: kept.Metadata}, nil
	}}
	svc, err := router.New(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
}
