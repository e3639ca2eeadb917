package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

const (
	service  = "crash"
	consumer = "stock"
	group    = "stock"
	topic    = "orders"
	ticks    = "ticks" // what the fleet delivers

	maxAttempts = 6
)

// setup is what the parent tells its workers.
type setup struct {
	Kind     string // of the broker
	URL      string // of the store
	Broker   string // its address
	Dir      string // for histories
	AckFirst bool   // a broken rule
	Blind    bool   // another: what cannot be read is taken for a message
	Keyless  bool   // another: a retry has no key
	Hasty    bool   // another: what is in flight elsewhere is not held, but given back at once

	Protocol kafka.Protocol
	Commit   time.Duration // how often Kafka's offsets are committed
	Limit    int           // of deliveries, where the broker has one
	InFlight int           // of a partition, or of a consumer
	Slow     time.Duration // how long a slow handler works
}

const setupEnv = "MILLPOND_CRASH_SETUP"

const workerFailure = "worker failed: "

// work is the service under test. It returns the exit code.
func work() int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	err := serve(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, brokers.ErrUnavailable):
		return 0 // it was killed while this process started; the next one tries again
	}
	fmt.Fprintln(os.Stderr, workerFailure+err.Error())
	return 1
}

// shop is the service in one process.
type shop struct {
	setup

	worker   *fleet.Worker
	recorder *recorder
	runs     atomic.Int64
}

func serve(ctx context.Context) error {
	w, err := fleet.ConnectStdio()
	if err != nil {
		return err
	}
	s := &shop{worker: w}
	if err := json.Unmarshal([]byte(os.Getenv(setupEnv)), &s.setup); err != nil {
		return err
	}
	if s.recorder, err = newRecorder(s.Dir, w); err != nil {
		return err
	}
	// From here on faults may strike.
	times, err := w.Subscribe(ctx, ticks)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var beside errgroup.Group
	beside.Go(func() error {
		defer leave() // the parent needs this process no more
		for tick := range times {
			tick.Ack()
		}
		return nil
	})
	err = s.consume(ctx, &beside)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, brokers.ErrUnavailable)) {
		err = nil // asked to leave before it was ready
	}
	leave()
	return errors.Join(err, w.Close(), beside.Wait())
}

// consume runs the router until ctx ends, with a retry worker beside.
func (s *shop) consume(ctx context.Context, beside *errgroup.Group) error {
	store, handler, err := openStore(ctx, s.URL)
	if err != nil {
		return err
	}
	defer store.Close()
	broker, err := kinds[s.Kind].open(ctx, s.setup, s.recorder)
	if err != nil {
		return err
	}
	defer broker.Close()
	router, retries, err := s.wire(store, broker, handler(s.apply))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	beside.Go(func() error {
		defer close(stopped)
		return retries.Run(ctx)
	})
	defer func() { <-stopped }()
	defer cancel()
	return router.Run(ctx)
}

func (s *shop) wire(store stores.Store, broker brokers.Broker, handle message.NoPublishHandlerFunc) (*message.Router, *middleware.RetryWorker, error) {
	inbox, err := middleware.NewInbox(impatient{store, s.Keyless}, middleware.InboxConfig{
		Service:        service,
		ClaimTimeout:   2 * time.Second,
		HandlerTimeout: 15 * time.Second, // longer than a worker is stopped
		CommitTimeout:  5 * time.Second,
		Hold:           s.hold(),
		Retry:          middleware.RetryPolicy{MaxAttempts: maxAttempts, Backoff: middleware.BackoffConfig{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond}},
		Hooks:          []middleware.Hook{s.recorder},
		Logger:         slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		return nil, nil, err
	}
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{
		Group: group, InFlight: 16,
		Logger: watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	})
	if err != nil {
		return nil, nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return nil, nil, err
	}
	router.AddMiddleware(wmiddleware.Recoverer)
	h := router.AddConsumerHandler(consumer, topic, subscriber, handle)
	if s.AckFirst {
		h.AddMiddleware(ackFirst)
	}
	h.AddMiddleware(inbox.Middleware)
	retries, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{
		Handlers:     router.Handlers(),
		Middlewares:  []message.HandlerMiddleware{wmiddleware.Recoverer},
		Concurrency:  3,
		PollInterval: 200 * time.Millisecond,
		DrainTimeout: 20 * time.Second,
	})
	return router, retries, err
}

func (s *shop) hold() middleware.HoldConfig {
	c := middleware.HoldConfig{Limit: 20 * time.Second, MinPause: 5 * time.Millisecond, MaxPause: 100 * time.Millisecond}
	if s.Hasty {
		c.Limit = time.Millisecond
	}
	return c
}

// ackFirst breaks the rule that an ack never precedes the commit.
func ackFirst(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		msg.Ack()
		return next(msg)
	}
}
