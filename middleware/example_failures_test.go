package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A message that fails is parked, by default: it is stored and acked, and the retry worker
// runs it again. When its attempts are spent, a copy goes to the topic of dead letters.
func ExampleRetryPolicy_parked() {
	exampleFailures(middleware.RetryPolicy{
		MaxAttempts: 3,
		Backoff:     middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond},
	})
	// The retry worker may begin an attempt before the end of the last one is printed.

	// Unordered output:
	// attempt: card service is away
	// delivery ended: parked
	// attempt: card service is away
	// delivery ended: parked
	// attempt: card service is away
	// delivery ended: failed
	// dead letter: order-1
	// in Watermill's poison queue: 0
}

// With PlacementRedelivered the broker keeps the message, and its redeliveries make the
// next attempts. The same policy decides when it has failed for good.
func ExampleRetryPolicy_redelivered() {
	exampleFailures(middleware.RetryPolicy{
		MaxAttempts: 3,
		Backoff:     middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond},
		Placement:   stores.PlacementRedelivered,
	})
	// Output:
	// attempt: card service is away
	// delivery ended: given_back
	// attempt: card service is away
	// delivery ended: given_back
	// attempt: card service is away
	// delivery ended: failed
	// dead letter: order-1
	// in Watermill's poison queue: 0
}

// exampleFailures runs one order whose handler always fails.
func exampleFailures(policy middleware.RetryPolicy) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "millpond")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	check(err)
	defer func() { _ = store.Close() }()
	subscriber, publisher := exampleBroker()
	letters, err := subscriber.Subscribe(ctx, "orders.dead")
	check(err)

	done := make(doneHook)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service:     "shop",
		Retry:       policy,
		DeadLetters: middleware.DeadLetterConfig{Publisher: publisher, Topic: "orders.dead"},
		Hooks:       []middleware.Hook{done},
	})
	check(err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	// For handlers without an inbox: with this filter it takes nothing that the inbox gives back.
	poison := new(poisoned)
	poisonQueue, err := watermillmiddleware.PoisonQueueWithFilter(poison, "poison", middleware.OnlyFailures)
	check(err)
	router.AddMiddleware(poisonQueue, inbox.Middleware)
	router.AddConsumerHandler("charge", "orders", subscriber,
		sqlite.Handler(func(context.Context, *sql.Tx, *message.Message) error {
			err := errors.New("card service is away")
			fmt.Println("attempt:", err)
			return err
		}))
	worker, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers()})
	check(err)
	go func() { _ = worker.Run(ctx) }()
	go func() { _ = router.Run(ctx) }()
	<-router.Running()

	check(publisher.Publish("orders", message.NewMessage("order-1", []byte("chair"))))
	for range policy.MaxAttempts {
		fmt.Println("delivery ended:", <-done)
	}
	letter := <-letters
	fmt.Println("dead letter:", letter.UUID)
	letter.Ack()
	check(router.Close())
	fmt.Println("in Watermill's poison queue:", *poison)
}

// poisoned counts what is published to it.
type poisoned int

func (p *poisoned) Publish(_ string, messages ...*message.Message) error {
	*p += poisoned(len(messages))
	return nil
}

func (p *poisoned) Close() error { return nil }
