package middleware_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

type OrderPlaced struct{ SKU string }

type ReserveStock struct{ SKU string }

// bookings are handlers of Watermill's cqrs component, as they are without an inbox
// but for the transaction: the context of a handler carries it.
type bookings struct{ kind string }

func (b bookings) placed(ctx context.Context, e *OrderPlaced) error   { return b.book(ctx, e.SKU) }
func (b bookings) reserve(ctx context.Context, c *ReserveStock) error { return b.book(ctx, c.SKU) }

func (b bookings) book(ctx context.Context, sku string) error {
	tx, ok := sqlite.TxFromContext(ctx)
	if !ok {
		return stores.ErrNoTx
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO booking (kind, sku) VALUES (?, ?)", b.kind, sku)
	return err
}

// A handler of Watermill's cqrs component stays as it is: its context carries the
// transaction. The event is sent twice, and booked once.
func Example_cqrs() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "millpond")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	check(err)
	defer func() { _ = store.Close() }()
	_, err = store.DB().ExecContext(ctx, "CREATE TABLE booking (kind TEXT, sku TEXT) STRICT")
	check(err)

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	done := make(doneHook)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "shop", Hooks: []middleware.Hook{done}})
	check(err)
	router.AddMiddleware(inbox.Middleware)

	reserve := cqrs.NewEventHandler("reserve", func(ctx context.Context, e *OrderPlaced) error {
		tx, ok := sqlite.TxFromContext(ctx)
		if !ok {
			return stores.ErrNoTx
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO booking (kind, sku) VALUES ('event', ?)", e.SKU)
		return err
	})
	subscriber, publisher := exampleBroker()
	events, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return p.EventName, nil },
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return subscriber, nil
		},
		Marshaler: cqrs.JSONMarshaler{},
	})
	check(err)
	check(events.AddHandlers(reserve))
	go func() { _ = router.Run(ctx) }()
	<-router.Running()

	event, err := cqrs.JSONMarshaler{}.Marshal(OrderPlaced{SKU: "chair"})
	check(err)
	for range 2 {
		check(publisher.Publish("middleware_test.OrderPlaced", event.Copy()))
		fmt.Println(<-done)
	}
	check(router.Close())
	var booked int
	check(store.DB().QueryRowContext(ctx, "SELECT count(*) FROM booking").Scan(&booked))
	fmt.Println("booked:", booked)
	// Output:
	// completed
	// duplicate
	// booked: 1
}

// newProcessors puts an event, a command and an event group processor on a router
// that has the inbox.
func newProcessors(router *message.Router, broker brokers.Broker) error {
	marshaler := cqrs.JSONMarshaler{}
	subscriber := func(group string) (message.Subscriber, error) {
		return broker.Subscriber(brokers.SubscriberConfig{Group: group})
	}
	events, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return p.EventName, nil },
		SubscriberConstructor: func(p cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return subscriber(p.HandlerName)
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	commands, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return p.CommandName, nil },
		SubscriberConstructor: func(p cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return subscriber(p.HandlerName)
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	groups, err := cqrs.NewEventGroupProcessorWithConfig(router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) {
			return marshaler.Name(OrderPlaced{}), nil
		},
		SubscriberConstructor: func(p cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return subscriber(p.EventGroupName)
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	if err := events.AddHandlers(cqrs.NewEventHandler("on-order-placed", bookings{"event"}.placed)); err != nil {
		return err
	}
	if err := commands.AddHandlers(cqrs.NewCommandHandler("reserve-stock", bookings{"command"}.reserve)); err != nil {
		return err
	}
	return groups.AddHandlersGroup("projections", cqrs.NewGroupEventHandler(bookings{"group"}.placed))
}

func TestCQRSProcessorsRunUnchangedBehindTheInbox(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "cqrs.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.DB().ExecContext(t.Context(), "CREATE TABLE booking (kind TEXT, sku TEXT) STRICT"); err != nil {
		t.Fatal(err)
	}
	broker, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = broker.Close() }()
	done := make(doneHook, 100)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "shop", Hooks: []middleware.Hook{done}})
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(inbox.Middleware)
	if err := newProcessors(router, broker); err != nil {
		t.Fatal(err)
	}
	go func() { _ = router.Run(context.WithoutCancel(t.Context())) }()
	<-router.Running()
	defer func() { _ = router.Close() }()

	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	marshaler := cqrs.JSONMarshaler{}
	want := map[middleware.Result]int{middleware.ResultCompleted: 3, middleware.ResultDuplicate: 3}
	for _, body := range []any{OrderPlaced{"chair"}, ReserveStock{"chair"}} {
		msg, err := marshaler.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // a producer that sends twice
			if err := publisher.Publish(marshaler.Name(body), msg.Copy()); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := make(map[middleware.Result]int)
	for range 6 {
		got[<-done]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("deliveries ended as %v, want %v", got, want)
	}
	assertBookings(t, store.DB(), map[string]int{"event": 1, "command": 1, "group": 1})
}

func assertBookings(t *testing.T, db *sql.DB, want map[string]int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT kind, count(*) FROM booking GROUP BY kind")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	got := make(map[string]int)
	for rows.Next() {
		var kind string
		var n int
		if err := rows.Scan(&kind, &n); err != nil {
			t.Fatal(err)
		}
		got[kind] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("bookings %v, want %v", got, want)
	}
}
