package crash

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

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// setup is what the parent tells its workers.
type setup struct {
	System  string // one of clients
	URL     string // of the store
	Dir     string // for histories
	Variant string // a rule to break, see variants

	HandlerTimeout time.Duration
	CommitTimeout  time.Duration
	HoldLimit      time.Duration
	MaxAttempts    int

	Redelivered bool // the second consumer's failed messages stay with the broker
	OrderKeys   bool // by the key of the message
	Operated    bool // operators decide about what has failed

	Leases  leases // zero: handlers run in transactions
	Batches bool   // messages share transactions
}

// reserve is for how long a retry worker has a message: less than it would ask for, so
// that what a killed one had is tried again within the test.
const reserve = 3 * time.Second

const setupEnv = "MILLPOND_CRASH_SETUP"

// work is the service under test: a router with the inbox, on a subscriber that the
// parent feeds. It returns the exit code.
func work() int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	w, err := fleet.ConnectStdio()
	if err != nil {
		return workerFailed(err)
	}
	if err := serve(ctx, w); err != nil {
		return workerFailed(err)
	}
	return 0
}

const workerFailure = "worker failed: "

func workerFailed(err error) int {
	fmt.Fprintln(os.Stderr, workerFailure+err.Error())
	return 1
}

// shop is the service in one process.
type shop struct {
	setup

	worker   *fleet.Worker
	recorder *recorder
	dialect  dialect
	echoing  map[string]*echoing // by consumer
	runs     atomic.Int64
}

func serve(ctx context.Context, w *fleet.Worker) error {
	var s setup
	if err := json.Unmarshal([]byte(os.Getenv(setupEnv)), &s); err != nil {
		return err
	}
	recorder, err := newRecorder(s.Dir, w)
	if err != nil {
		return err
	}
	b, err := clients[s.System](ctx, s.URL, w.Index)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to leave before it was ready
	case err != nil:
		return err
	}
	defer b.close()
	defer b.store.Close()
	b.store, b.worker = &watchedStore{
		Store: b.store, Outbox: b.store.(stores.Outbox), journal: b.store.(stores.LeaseInbox), recorder: recorder, leases: s.Leases, //nolint:forcetypeassert // all stores are
	}, w.Index

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	config := middleware.InboxConfig{
		Service:        service,
		ClaimTimeout:   s.HandlerTimeout,
		HandlerTimeout: s.HandlerTimeout,
		CommitTimeout:  s.CommitTimeout,
		Hold:           middleware.HoldConfig{Limit: s.HoldLimit, MinPause: 5 * time.Millisecond, MaxPause: 100 * time.Millisecond},
		Retry:          s.policy(stores.PlacementParked),
		Hooks:          []middleware.Hook{recorder},
		Logger:         log,
	}
	if s.Redelivered {
		config.RetryByHandler = map[string]middleware.RetryPolicy{consumers[1]: s.policy(stores.PlacementRedelivered)}
	}
	if s.Batches {
		inBatches(&config)
	}
	shop := &shop{setup: s, worker: w, recorder: recorder, dialect: b.dialect, echoing: make(map[string]*echoing)}
	shop.callbacks(&config)
	publishTo := message.Publisher(unpublished{})
	if s.Leases.on() {
		publishTo = s.Leases.configure(&config)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	v := variantOf(s.Variant)
	inboxes, err := v.inboxes(b, config)
	if err != nil {
		return err
	}
	router.AddMiddleware(wmiddleware.Recoverer)
	var beside errgroup.Group
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	for i, consumer := range consumers {
		subscriber := newEchoing(group{w, consumer}, recorder)
		shop.echoing[consumer] = subscriber
		h := router.AddHandler(consumer, topic, subscriber, said, publishTo, shop.handler(b, consumer))
		h.AddMiddleware(v.middleware(inboxes[i]))
		retries, err := middleware.NewRetryWorker(inboxes[i], middleware.RetryWorkerConfig{
			Handlers:     map[string]message.HandlerFunc{consumer: router.Handlers()[consumer]},
			Middlewares:  []message.HandlerMiddleware{wmiddleware.Recoverer},
			Concurrency:  3,
			PollInterval: 200 * time.Millisecond,
			DrainTimeout: 20 * time.Second,
		})
		if err != nil {
			return err
		}
		beside.Go(func() error { return retries.Run(ctx) })
	}
	if s.Operated {
		beside.Go(func() error { return (&operator{v.inspector(b), recorder}).run(ctx) })
	}
	err = router.Run(ctx)
	leave()
	return errors.Join(err, w.Close(), beside.Wait())
}

// policy is what becomes of failed messages.
func (s *setup) policy(p stores.Placement) middleware.RetryPolicy {
	policy := middleware.RetryPolicy{
		MaxAttempts: s.MaxAttempts, Placement: p,
		Backoff: middleware.BackoffConfig{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond}, Classify: classify,
	}
	if s.OrderKeys {
		policy.OrderKey = middleware.OrderByKey
	}
	return policy
}

// group subscribes to a consumer's own queue of a topic.
type group struct {
	*fleet.Worker
	consumer string
}

func (g group) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	return g.Worker.Subscribe(ctx, queue(g.consumer))
}

// said is the topic of what handlers return.
const said = "said"

// unpublished must never be called: what a handler returns is rolled back.
type unpublished struct{}

func (unpublished) Publish(string, ...*message.Message) error {
	fmt.Fprintln(os.Stderr, workerFailure+"an output of a rolled back attempt was published")
	return nil
}

func (unpublished) Close() error { return nil }
