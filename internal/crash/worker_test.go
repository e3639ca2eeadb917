package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/middleware"
)

// setup is what the parent tells its workers.
type setup struct {
	URL     string // of the store
	Dir     string // for histories
	Variant string // a rule to break, see variants

	HandlerTimeout time.Duration
	CommitTimeout  time.Duration
	HoldLimit      time.Duration
}

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
	worker   *fleet.Worker
	recorder *recorder
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
	b, err := openBackend(ctx, workerURL(s.URL, w.Index))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // asked to leave before it was ready
	case err != nil:
		return err
	}
	defer b.store.Close()
	defer b.db.Close()

	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	config := middleware.InboxConfig{
		Service:        service,
		ClaimTimeout:   s.HandlerTimeout,
		HandlerTimeout: s.HandlerTimeout,
		CommitTimeout:  s.CommitTimeout,
		Hold:           middleware.HoldConfig{Limit: s.HoldLimit, MinPause: 5 * time.Millisecond, MaxPause: 100 * time.Millisecond},
		Backoff:        middleware.BackoffConfig{Min: 5 * time.Millisecond, Max: 100 * time.Millisecond},
		Hooks:          []middleware.Hook{recorder},
		Logger:         log,
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	inbox, err := variants[s.Variant].inbox(b, config)
	if err != nil {
		return err
	}
	router.AddMiddleware(wmiddleware.Recoverer, inbox)
	shop := &shop{worker: w, recorder: recorder}
	for _, consumer := range consumers {
		router.AddHandler(consumer, topic, group{w, consumer}, "never", unpublished{}, shop.handler(b, consumer))
	}
	return errors.Join(router.Run(ctx), w.Close())
}

// group subscribes to a consumer's own queue of a topic.
type group struct {
	*fleet.Worker
	consumer string
}

func (g group) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	return g.Worker.Subscribe(ctx, queue(g.consumer))
}

// unpublished must never be called: what a handler returns is rolled back.
type unpublished struct{}

func (unpublished) Publish(string, ...*message.Message) error {
	fmt.Fprintln(os.Stderr, workerFailure+"an output of a rolled back attempt was published")
	return nil
}

func (unpublished) Close() error { return nil }

// handler is the handler of a consumer, with the typed helper of the store.
func (s *shop) handler(b *backend, consumer string) message.HandlerFunc {
	apply := func(ctx context.Context, tx transaction, msg *message.Message) error {
		return s.apply(ctx, tx, consumer, msg)
	}
	typed := b.handler(apply)
	return func(msg *message.Message) ([]*message.Message, error) {
		run := typed
		if tx, ok := msg.Context().Value(variantTxKey{}).(transaction); ok {
			run = func(msg *message.Message) error { return apply(msg.Context(), tx, msg) }
		}
		err := run(msg)
		switch conductOf(msg.UUID) {
		case outputs:
			if err == nil {
				return message.Messages{message.NewMessage("an output", nil)}, nil
			}
		case reenters:
			if first(msg) {
				return nil, ignore(run(msg))
			}
		}
		return nil, err
	}
}

// first reports whether this is the first time that the message is delivered.
func first(msg *message.Message) bool {
	d, _ := brokers.DeliveryFrom(msg.Context())
	return d.Count <= 1
}

func ignore(error) error { return nil }

var errFlaky = errors.New("the handler fails")

// apply writes both effects, with the counter between them, and behaves as the id says.
func (s *shop) apply(ctx context.Context, tx transaction, consumer string, msg *message.Message) error {
	run := fmt.Sprintf("%d.%d-%d", s.worker.Index, s.worker.Start, s.runs.Add(1))
	s.recorder.say(ctx, saidRun, run)
	conduct := conductOf(msg.UUID)
	effect := func(part int) error {
		err := tx.exec(ctx, "INSERT INTO effect VALUES ($1, $2, $3, $4, $5)", consumer, msg.UUID, part, run, string(msg.Payload))
		s.recorder.say(ctx, saidEffect, fmt.Sprintf("%d by %s: %v", part, run, err))
		return err
	}
	if err := effect(1); err != nil {
		return err
	}
	s.recorder.at(ctx, pointBetween)
	hiding := false
	if err := s.behave(ctx, tx, conduct, msg); err != nil {
		if hiding = slices.Contains(dishonest, conduct); !hiding {
			return err
		}
		s.recorder.say(ctx, "handler hides", err)
	}
	counted := tx.exec(ctx, "UPDATE stock SET sold = sold + 1 WHERE consumer = $1 AND item = $2", consumer, item(msg.UUID))
	// A statement that was not even sent, because the handler's time was over, leaves no
	// trace in the transaction: only the handler can tell.
	if err := errors.Join(counted, effect(2)); err != nil && (!hiding || ctx.Err() != nil) {
		return err
	}
	if conduct == leaks && first(msg) {
		go func() {
			for tx.exec(ctx, "SELECT 1") == nil { // until it is told off
			}
		}()
	}
	return nil
}

// item is what an order is for.
func item(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % items)
}

// behave does what the conduct says, between the effects.
func (s *shop) behave(ctx context.Context, tx transaction, c conduct, msg *message.Message) error {
	switch c {
	case slow:
		return tx.linger(ctx)
	case batched:
		return tx.detour(ctx)
	case flaky:
		if d, _ := brokers.DeliveryFrom(msg.Context()); d.Count <= 2 {
			return errFlaky
		}
	}
	if !first(msg) {
		return nil
	}
	switch c {
	case panics:
		panic("the handler panics")
	case exits:
		os.Exit(3)
	case goexits:
		runtime.Goexit()
	case swallows:
		return tx.exec(ctx, "INSERT INTO taken VALUES (1)")
	case replaces:
		return tx.fail(ctx)
	case commits:
		return errors.Join(tx.exec(ctx, "COMMIT"), tx.finish(ctx, true))
	case rollback:
		return errors.Join(tx.exec(ctx, "ROLLBACK"), tx.finish(ctx, false))
	case defers:
		return tx.exec(ctx, "INSERT INTO child VALUES (7)")
	case cancels:
		soon, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		return tx.linger(soon)
	}
	return nil
}
