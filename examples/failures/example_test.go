package main

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A worker beside the router makes the later attempts of messages that were parked.
func Example_retryWorker() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "millpond")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	must(err)
	defer func() { _ = store.Close() }()

	ends := make(endings)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: "shop",
		Retry:   middleware.RetryPolicy{Backoff: middleware.BackoffConfig{Min: time.Millisecond}},
		Hooks:   []middleware.Hook{ends},
		Logger:  slog.New(slog.DiscardHandler),
	})
	must(err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	must(err)
	router.AddMiddleware(inbox.Middleware)
	subscriber, publisher := memoryBroker()
	attempts := 0
	router.AddConsumerHandler("charge", "orders", subscriber,
		sqlite.Handler(func(context.Context, *sql.Tx, *message.Message) error {
			if attempts++; attempts < 3 {
				return errors.New("the payment provider does not answer")
			}
			return nil
		}))

	worker, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers()})
	must(err)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { defer stop(); return router.Run(ctx) }) // one that ends, ends both
	group.Go(func() error { defer stop(); return worker.Run(ctx) })

	<-router.Running()
	must(publisher.Publish("orders", message.NewMessage("order-1", nil)))
	for range 3 {
		fmt.Println(<-ends)
	}
	stop()
	must(group.Wait())
	// Output:
	// parked
	// parked
	// completed
}

// endings is a hook that tells how deliveries end.
type endings chan middleware.Result

func (e endings) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) { e <- d.Result }

func memoryBroker() (message.Subscriber, message.Publisher) {
	broker, err := memory.New(memory.Config{})
	must(err)
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "shop"})
	must(err)
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	must(err)
	return subscriber, publisher
}

// The policy of a service, and another one for one of its handlers.
func Example_policy() {
	config := middleware.InboxConfig{
		Service: "shop",
		Retry: middleware.RetryPolicy{
			MaxAttempts: 20,
			MaxAge:      72 * time.Hour,
			Backoff:     middleware.BackoffConfig{Min: 5 * time.Second, Max: time.Hour},
			OrderKey:    middleware.OrderByKey,
		},
		RetryByHandler: map[string]middleware.RetryPolicy{
			"send-mail": {MaxAttempts: 3, Placement: stores.PlacementRedelivered},
		},
	}
	fmt.Println(config.Retry.MaxAttempts, config.RetryByHandler["send-mail"].MaxAttempts)
	// Output: 20 3
}

// What a handler says about its errors.
func Example_errors() {
	charge := func(ctx context.Context, order *http.Request) error {
		answer, err := http.DefaultClient.Do(order.WithContext(ctx))
		if err != nil {
			return err // tried again, after the policy's backoff
		}
		defer func() { _ = answer.Body.Close() }()
		switch answer.StatusCode {
		case http.StatusPaymentRequired:
			return middleware.Permanent(errors.New("the card is declined"))
		case http.StatusTooManyRequests:
			seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
			return middleware.RetryAfter(errors.New("too many requests"), time.Duration(seconds)*time.Second)
		}
		return nil
	}
	debit := func(ctx context.Context, tx pgx.Tx, account string, version int) error {
		tag, err := tx.Exec(ctx, "UPDATE account SET … WHERE name = $1 AND version = $2", account, version)
		if err == nil && tag.RowsAffected() == 0 {
			return middleware.Contention(errors.New("the account has changed since it was read"))
		}
		return err
	}
	_, _ = charge, debit
}

// Kept messages are encrypted, and copies of dead letters published.
func Example_keep() {
	var (
		aead      cipher.AEAD
		publisher message.Publisher
	)
	seal := func(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
		nonce := make([]byte, aead.NonceSize())
		_, _ = rand.Read(nonce)
		k.Payload = aead.Seal(nonce, nonce, k.Payload, nil)
		return k, nil
	}
	open := func(_ context.Context, k middleware.Kept) (_ middleware.Kept, err error) {
		if len(k.Payload) < aead.NonceSize() {
			return k, errors.New("it is too short")
		}
		nonce, sealed := k.Payload[:aead.NonceSize()], k.Payload[aead.NonceSize():]
		k.Payload, err = aead.Open(nil, nonce, sealed, nil)
		return k, err
	}
	config := middleware.InboxConfig{
		Service:     "shop",
		Keep:        middleware.KeepConfig{Codec: &middleware.Codec{Name: "aes-2026", Encode: seal, Decode: open}},
		DeadLetters: middleware.DeadLetterConfig{Publisher: publisher, Topic: "orders.dead"},
	}
	_ = config
}

// What the command millpond does is there for programs, too.
func Example_inspector() {
	var (
		ctx   context.Context
		store *postgres.Store
	)
	retry := func(cause string) error {
		change := stores.Change{
			Verb: stores.VerbRetry, Filter: stores.Filter{Cause: cause},
			Actor: "deploy", Reason: "fixed in v1.2.3", Limit: 500,
		}
		_, highest, err := store.Matching(ctx, change.Filter, 10_000)
		if err != nil {
			return err
		}
		for change.UpTo = highest; ; {
			done, err := store.Change(ctx, change)
			if err != nil || done.Done {
				return err
			}
			change.After = done.Next
		}
	}
	_ = retry
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
