package middleware_test

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// Two databases, each with the effects of some customers and the inbox of their messages. Each
// message is sent twice.
func Example_shards() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "millpond")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	done := make(doneHook)
	var stores []*sqlite.Store
	var shards []message.HandlerFunc // each behind the inbox of its database
	for i := range 2 {
		store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, fmt.Sprintf("shop-%d.db", i)))
		check(err)
		defer func() { _ = store.Close() }()
		_, err = store.DB().ExecContext(ctx, "CREATE TABLE booking (customer TEXT) STRICT")
		check(err)
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "shop", Hooks: []middleware.Hook{done}})
		check(err)
		book := sqlite.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO booking (customer) VALUES (?)", msg.Metadata.Get("customer"))
			return err
		})
		stores = append(stores, store)
		shards = append(shards, inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, book(msg) }))
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	subscriber, publisher := exampleBroker()
	// The same rule picks the database everywhere, and never the load does.
	router.AddConsumerHandler("book", "orders", subscriber, func(msg *message.Message) error {
		customer := fnv.New32a()
		_, _ = customer.Write([]byte(msg.Metadata.Get("customer")))
		_, err := shards[customer.Sum32()%uint32(len(shards))](msg)
		return err
	})
	go func() { _ = router.Run(ctx) }()
	<-router.Running()

	for _, customer := range []string{"anna", "ben", "carla"} {
		msg := message.NewMessage(watermill.NewUUID(), nil)
		msg.Metadata.Set("customer", customer)
		for range 2 {
			check(publisher.Publish("orders", msg.Copy()))
			<-done
		}
	}
	check(router.Close())
	for i, store := range stores {
		var n int
		check(store.DB().QueryRowContext(ctx, "SELECT count(*) FROM booking").Scan(&n))
		fmt.Println("shard", i, "has", n)
	}
	// Output:
	// shard 0 has 2
	// shard 1 has 1
}
