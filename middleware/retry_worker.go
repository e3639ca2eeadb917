package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// RetryWorkerConfig configures a [RetryWorker]. Only Handlers is required.
type RetryWorkerConfig struct {
	// Handlers are the handlers by their names in the router, as router.Handlers returns them.
	// Parked messages of other handlers are not run, but reported. Required.
	Handlers map[string]message.HandlerFunc

	// Middlewares are put around the inbox for retried messages, the first outermost. The
	// middlewares of the program's router are not applied. Add those that change messages, if
	// they are between an [Arrival] and the inbox, or inside the inbox. Leave out those around an
	// inbox without an Arrival: they have already changed the kept message.
	Middlewares []message.HandlerMiddleware

	Concurrency  int           `config:"concurrency" default:"8" check:"positive" about:"How many retries of one handler run at a time. Each takes a connection of the store."`
	PollInterval time.Duration `config:"poll_interval" default:"1s" check:"positive" about:"How often the worker polls the store while no message is due."`

	// DrainTimeout bounds how long Run waits for running handlers when it ends.
	DrainTimeout time.Duration `config:"-" default:"30s" check:"positive"`
}

// RetryWorker runs parked messages when they are due, with the handlers of a router and behind
// its inbox. Any number of workers and processes share the work; one worker at a time runs a
// message.
//
//	worker, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers()})
//	go worker.Run(ctx)
type RetryWorker struct {
	in     *Inbox
	store  stores.Retries
	config RetryWorkerConfig
	feeds  []*feed
	ran    atomic.Bool
	tally  tally
}

// NewRetryWorker returns a worker for the messages that the inbox has parked, in this or in
// another process of the service, or all errors of the configuration at once. The inbox's store
// must implement stores.Retries.
func NewRetryWorker(in *Inbox, c RetryWorkerConfig) (*RetryWorker, error) {
	if in == nil {
		return nil, errors.New("middleware: NewRetryWorker: the inbox is nil")
	}
	w := &RetryWorker{in: in, config: c}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var ok bool
	if w.store, ok = in.store.(stores.Retries); !ok {
		bad("the inbox's store, a %T, does not implement stores.Retries", in.store)
	}
	if len(c.Handlers) == 0 {
		bad("Handlers is empty: set it to router.Handlers(), after the handlers were added")
	}
	for _, problem := range field.Check(&c, field.Names{Go: true}) {
		errs = append(errs, problem)
	}
	field.SetDefaults(&w.config)
	for _, name := range slices.Sorted(maps.Keys(c.Handlers)) {
		consumer, err := in.consumers.name(name, "")
		if c.Handlers[name] == nil {
			err = errors.Join(err, errors.New("it is nil"))
		}
		if err != nil {
			bad("Handlers[%q]: %w", name, err)
		}
		w.feeds = append(w.feeds, newFeed(w, name, consumer))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("middleware: NewRetryWorker: %w", errors.Join(errs...))
	}
	return w, nil
}

// Run runs due messages until ctx ends. Then it reserves no more, gives back those that it has
// not begun, and waits for running handlers, at most DrainTimeout. While the store does not
// answer, Run waits and returns no error. It may be called once.
func (w *RetryWorker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return errors.New("middleware: RetryWorker.Run was called twice")
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: w.config.DrainTimeout}, watermill.NewSlogLogger(loglimit.OfRouter(w.in.config.Logger, ErrNotNow)))
	if err != nil {
		return fmt.Errorf("middleware: RetryWorker: %w", err)
	}
	if len(w.config.Middlewares) > 0 {
		router.AddMiddleware(Arrival)
		router.AddMiddleware(w.config.Middlewares...)
	}
	router.AddMiddleware(w.in.Middleware)
	for _, f := range w.feeds {
		router.AddHandler(f.handler, "", f, "", nothing{}, w.config.Handlers[f.handler])
	}
	leave := w.in.workers.join(w.wake)
	defer leave()

	group, ctx := errgroup.WithContext(ctx)
	routing, stopRouting := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	group.Go(func() error {
		defer close(ended)
		return router.Run(routing)
	})
	group.Go(func() error {
		<-ctx.Done()
		select {
		case <-router.Running(): // a router that is closed while it starts deadlocks
		case <-ended:
		}
		stopRouting()
		return router.Close() // Run alone would wait for handlers for ever
	})
	group.Go(func() error { w.listen(ctx); return nil })
	group.Go(func() error { w.watchBacklog(ctx); return nil })
	if err := group.Wait(); err != nil {
		return fmt.Errorf("middleware: RetryWorker: %w", err)
	}
	return nil
}

// nothing is a publisher that publishes nothing: the inbox returns no outputs to the router.
type nothing struct{}

func (nothing) Publish(string, ...*message.Message) error { return ErrOutputs }
func (nothing) Close() error                              { return nil }

// wake makes the feeds of a consumer poll after a pause; the zero consumer means all.
func (w *RetryWorker) wake(c stores.Consumer, in time.Duration) {
	for _, f := range w.feeds {
		if c == (stores.Consumer{}) || c == f.consumer {
			f.loop.Wake(in)
		}
	}
}

// listen wakes the feeds when the store signals due messages. Without signals they poll.
func (w *RetryWorker) listen(ctx context.Context) {
	waker, ok := w.in.store.(stores.Waker)
	if !ok {
		return
	}
	const longest = 30 * time.Second
	for wait := time.Second; ; wait = min(2*wait, longest) {
		begun := time.Now()
		err := waker.Listen(ctx, func() { w.wake(stores.Consumer{}, 0) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > longest {
			wait = time.Second
		}
		w.in.config.Logger.Debug("millpond: retry worker is not woken by the store, and polls", slog.Any("error", err))
		if !pause.Sleep(ctx, pause.Jitter(wait)) {
			return
		}
	}
}

// watchBacklog reports due messages whose handlers are missing here.
func (w *RetryWorker) watchBacklog(ctx context.Context) {
	const (
		every = 30 * time.Second
		bound = 10_000
	)
	for {
		backlog, err := w.store.Backlog(ctx, bound)
		for _, b := range backlog {
			served := b.Consumer.Service != w.in.config.Service ||
				slices.ContainsFunc(w.feeds, func(f *feed) bool { return f.consumer == b.Consumer })
			if err != nil || served {
				continue
			}
			w.skipped(b.Consumer, SkipNoHandler, b.Due)
			w.in.config.Logger.Error("millpond: parked messages are due and their handler is not here: add it, name it in InboxConfig.Renamed, or discard them",
				slog.String("consumer", b.Consumer.String()), slog.Int("due", b.Due), slog.Duration("oldest", b.Oldest))
		}
		if !pause.Sleep(ctx, pause.Jitter(every)) {
			return
		}
	}
}

// SkipReason says why a due message was not run.
type SkipReason string

const (
	SkipCompleted SkipReason = "completed"  // by another delivery meanwhile
	SkipChanged   SkipReason = "changed"    // by an operator or another worker meanwhile
	SkipInFlight  SkipReason = "in_flight"  // another delivery of the message runs
	SkipLate      SkipReason = "late"       // its reservation was about to run out
	SkipNotNow    SkipReason = "not_now"    // the store did not answer, or the worker stops
	SkipNoHandler SkipReason = "no_handler" // its handler is not here; counted every 30 s
	SkipStopping  SkipReason = "stopping"   // given back at the end of Run, before it began
)

// RetryStats counts what a worker has done since its start.
type RetryStats struct {
	Taken     int // messages reserved
	Completed int // the handler ran and its effects were committed
	Failed    int // the attempt failed and was recorded
	Skipped   map[SkipReason]int
}

// Stats returns the counts. It may be called at any time.
func (w *RetryWorker) Stats() RetryStats {
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	s := w.tally.RetryStats
	s.Skipped = maps.Clone(s.Skipped)
	return s
}

type tally struct {
	mu sync.Mutex
	RetryStats
}

func (w *RetryWorker) skipped(c stores.Consumer, reason SkipReason, n int) {
	w.tally.mu.Lock()
	if w.tally.Skipped == nil {
		w.tally.Skipped = make(map[SkipReason]int)
	}
	w.tally.Skipped[reason] += n
	w.tally.mu.Unlock()
	w.in.hooks.retrySkipped(c, reason, n)
}

func (w *RetryWorker) took(n int) {
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	w.tally.Taken += n
}

// note counts the end of a retry.
func (w *RetryWorker) note(c stores.Consumer, end DeliveryEnd) {
	switch end.Result {
	case ResultCompleted:
		w.tally.mu.Lock()
		w.tally.Completed++
		w.tally.mu.Unlock()
	case ResultFailed, ResultPanicked, ResultGivenBack, ResultQuarantined:
		w.tally.mu.Lock()
		w.tally.Failed++
		w.tally.mu.Unlock()
	case ResultParked:
		if end.Class == "" {
			w.skipped(c, SkipChanged, 1)
			return
		}
		w.tally.mu.Lock()
		w.tally.Failed++
		w.tally.mu.Unlock()
	case ResultDuplicate:
		w.skipped(c, SkipCompleted, 1)
	case ResultFinal:
		w.skipped(c, SkipChanged, 1)
	case ResultNotNow:
		reason := SkipNotNow
		if errors.Is(end.Err, ErrInFlight) {
			reason = SkipInFlight
		}
		w.skipped(c, reason, 1)
	}
}
