package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/mysql"
)

// The effects of the handler commit together with the message, once.
func Example() {
	ctx := context.Background()
	store, err := mysql.Open(ctx, os.Getenv("DATABASE_URL")) // mysql://billing:secret@db/billing
	if err != nil {
		panic(err)
	}
	defer store.Close()
	if _, err := store.Migrate(ctx); err != nil {
		panic(err)
	}
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "billing"})
	if err != nil {
		panic(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		panic(err)
	}
	router.AddMiddleware(inbox.Middleware)
	router.AddConsumerHandler("charge", "orders", subscriber(), mysql.Handler(
		func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO charge (order_id) VALUES (?)", string(msg.Payload))
			return err
		},
	))
	if err := router.Run(ctx); err != nil {
		panic(err)
	}
}

// On a *sql.DB that the program has anyway, a message costs two round trips more.
func ExampleNew() {
	db, err := sql.Open("mysql", "billing:secret@tcp(db:3306)/billing")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	store, err := mysql.New(db, mysql.Config{TablePrefix: "inbox_"})
	if err != nil {
		panic(err)
	}
	fmt.Println(store.Capabilities().System, len(store.Migrations()))
	// Output: mysql 6
}

// subscriber is one of a broker's.
func subscriber() message.Subscriber { return nil }
