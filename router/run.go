package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Run checks that everything fits together, registers the handlers and runs them until ctx
// ends or the process gets SIGTERM or SIGINT. Then the intake stops and running handlers may
// finish. Shortly before the drain timeout the contexts of the others are canceled: they are
// rolled back, and their messages are redelivered. Run closes everything before it returns.
//
// It returns nil after such a stop. Otherwise the error says what did not fit, or what ended
// by itself; it wraps [ErrDrainTimeout] if handlers could not be ended. Run may be called
// once.
func (s *Service) Run(ctx context.Context) error {
	r, err := s.begin()
	if err != nil {
		return err
	}
	if !r.config.Program.NoSignals {
		var stop context.CancelFunc
		ctx, stop = untilSignal(ctx)
		defer stop()
	}
	parts, err := r.start(ctx)
	if err != nil {
		r.closeSubscribers()
		err = errors.Join(err, s.Close())
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // it was stopped before its first message
		}
		return err
	}
	return r.run(ctx, parts)
}

// run is one call of Service.Run.
type run struct {
	*wiring

	handlers    []*handler
	middlewares []message.HandlerMiddleware
	mistakes    []error      // of calls before Run
	close       func() error // Service.Close

	drain    *drain
	http     atomic.Pointer[httpServer]
	stopping atomic.Bool // the intake has ended, or is about to
}

// errSignal is the cause with which a signal ends a service's context.
var errSignal = errors.New("router: the process got a signal")

// untilSignal returns a context that ends with the first signal. Later signals have their
// usual effect, which is to end the process at once.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var why error
		select {
		case <-signals:
			why = errSignal
		case <-ctx.Done():
		}
		signal.Stop(signals) // before the context ends
		cancel(why)
	}()
	return ctx, func() { cancel(nil) }
}

func (s *Service) begin() (*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return nil, errors.New("router: Service.Run was called twice")
	}
	if s.closed {
		return nil, errors.New("router: Service.Run was called after Close")
	}
	s.running = &run{
		wiring: s.wiring, handlers: s.handlers, middlewares: s.middlewares, mistakes: s.mistakes, close: s.Close,
		drain: newDrain(),
	}
	return s.running, nil
}

// part is a part of the service. It runs until its context ends.
type part struct {
	name string
	run  func(context.Context) error
}

// start does everything that can be done before the first message.
func (r *run) start(ctx context.Context) ([]part, error) {
	if err := r.fit(); err != nil {
		return nil, err
	}
	r.advise()
	if err := r.listen(); err != nil {
		return nil, err
	}
	if err := r.prepareStore(ctx); err != nil {
		return nil, err
	}
	retried := make(map[string]message.HandlerFunc)
	for _, h := range r.handlers {
		if err := r.subscribe(h); err != nil {
			return nil, err
		}
		handle := r.drain.handler(h.name, h.handle)
		retried[h.name] = handle
		added := r.route(h, handle)
		if len(r.middlewares) > 0 {
			added.AddMiddleware(middleware.Arrival)
			added.AddMiddleware(r.middlewares...)
		}
		added.AddMiddleware(r.inbox.Middleware)
		h.added = added
	}
	parts, err := r.sweep([]part{{"the router", r.watermill.Run}, {"a subscriber", r.watch}})
	if err != nil {
		return nil, err
	}
	if err := r.makeRelay(); err != nil {
		return nil, err
	}
	if relay := r.relay.relay.Load(); relay != nil {
		parts = append(parts, part{relayPart, relay.Run})
	}
	if r.config.RetryWorker.Off || len(retried) == 0 {
		return parts, nil
	}
	worker, err := middleware.NewRetryWorker(r.inbox, middleware.RetryWorkerConfig{
		Handlers:     retried,
		Middlewares:  r.middlewares,
		Concurrency:  r.config.RetryWorker.Concurrency,
		PollInterval: r.config.RetryWorker.PollInterval,
		DrainTimeout: r.config.DrainTimeout + drainSlack,
	})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return append(parts, part{"the retry worker", worker.Run}), nil
}

func (r *run) subscribe(h *handler) (err error) {
	h.subscriber, err = r.broker.Subscriber(brokers.SubscriberConfig{
		Group:        r.config.groupOf(h.name),
		InFlight:     r.config.inFlightOf(h.name),
		DrainTimeout: r.config.DrainTimeout,
		Logger:       watermill.NewSlogLogger(r.log),
	})
	if err != nil {
		return fmt.Errorf("router: handler %q: %w", h.name, withoutSecrets(err, r.config.Broker.URL))
	}
	return nil
}

// startTimeout bounds the store's work before the first message.
const startTimeout = time.Minute

// prepareStore migrates or validates the tables and registers every consumer, so that a taken
// name is an error before the first message.
func (r *run) prepareStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if r.config.Store.Migrate {
		applied, err := r.store.Migrate(ctx)
		if err != nil {
			return fmt.Errorf("router: store.migrate: %w", withoutSecrets(err, r.config.Store.URL))
		}
		for _, m := range applied {
			r.log.Info("millpond: a migration was applied to the store's tables", slog.Int("version", m.Version), slog.String("name", m.Name))
		}
	}
	if err := r.store.Validate(ctx); err != nil {
		if errors.Is(err, stores.ErrNotMigrated) {
			err = fmt.Errorf("run millpond migrate up, or set store.migrate: true: %w", err)
		}
		return r.storeError(err)
	}
	r.warnOfNewNames(ctx)
	var errs []error
	for _, h := range r.handlers {
		if err := r.inbox.Register(ctx, h.name, h.topic); err != nil {
			errs = append(errs, fmt.Errorf("router: handler %q: %w", h.name, withoutSecrets(err, r.config.Store.URL)))
		}
	}
	return errors.Join(errs...)
}

// watch returns when a handler's subscriber ends by itself. Otherwise the other handlers
// would hide that one gets no more messages.
func (r *run) watch(ctx context.Context) error {
	select {
	case <-r.watermill.Running():
	case <-ctx.Done():
		return nil
	}
	ended := make(chan string)
	for _, h := range r.handlers {
		go func() {
			select {
			case <-h.added.Stopped():
			case <-ctx.Done():
				return
			}
			select {
			case ended <- h.name:
			case <-ctx.Done():
			}
		}()
	}
	r.log.Info("millpond: the service runs", slog.String("service", r.config.Service), slog.Int("handlers", len(r.handlers)),
		slog.String("broker", r.config.Broker.URL.String()), slog.String("store", r.config.Store.URL.String()))
	select {
	case name := <-ended:
		return fmt.Errorf("handler %q gets no more messages", name)
	case <-ctx.Done():
		return nil
	}
}

// ending is how a part ended.
type ending struct {
	part
	err error
}

// lives are the parts that run.
type lives struct {
	ends chan ending
	left int

	stop     context.CancelFunc // for all but the relay, which ends after what commits outputs
	relaying context.Context
	endRelay context.CancelFunc
}

func live(ctx context.Context, parts []part) *lives {
	l := &lives{ends: make(chan ending, len(parts)), left: len(parts)}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.relaying, l.endRelay = context.WithCancel(context.WithoutCancel(ctx))
	for _, p := range parts {
		life := work
		if p.name == relayPart {
			life = l.relaying
		}
		go func() { l.ends <- ending{p, p.run(life)} }()
	}
	return l
}

// run runs the parts until the context or one of them ends, and then stops the others.
func (r *run) run(ctx context.Context, parts []part) error {
	l := live(ctx, parts)
	defer l.endRelay()
	defer l.stop()
	select {
	case <-ctx.Done():
		r.logStop(context.Cause(ctx))
		return r.end(l, nil, true)
	case end := <-l.ends:
		l.left--
		failure := end.failure(r.config.Broker.URL)
		r.log.Error("millpond: the service stops, because a part of it ended", slog.String("error", failure.Error()))
		// Close of a router whose start failed waits for handlers that were never started.
		return r.end(l, failure, end.name != parts[0].name)
	}
}

// end stops the parts within the drain timeout, the relay last, and closes everything.
func (r *run) end(l *lives, failure error, closeRouter bool) error {
	r.stopping.Store(true)
	begun := time.Now()
	drained := r.config.DrainTimeout
	cut := time.AfterFunc(drained-min(rollbackTime, drained/5), func() {
		if still := r.drain.still(); still != "" {
			r.log.Warn("millpond: handlers did not finish in time and are rolled back", slog.String("running", still))
		}
		r.drain.cutOff()
	})
	defer cut.Stop()
	defer time.AfterFunc(drained-r.relayEnds(), l.endRelay).Stop()
	deadline := time.NewTimer(drained + drainSlack)
	defer deadline.Stop()

	l.stop()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if closeRouter {
			_ = r.watermill.Close() // Run reports how it ended
		}
		r.closeSubscribers()
	}()
	flush := sync.OnceFunc(func() { go r.flush(l) })
	for l.left > 0 || closed != nil {
		if l.left == 1 && closed == nil { // nobody commits outputs any more
			flush()
		}
		select {
		case end := <-l.ends:
			l.left--
			if end.err != nil && failure == nil {
				failure = end.failure(r.config.Broker.URL)
			}
		case <-closed:
			closed = nil
		case <-deadline.C:
			return errors.Join(failure, r.abandon())
		}
	}
	r.log.Info("millpond: the service has stopped", slog.Duration("after", time.Since(begun).Round(time.Millisecond)))
	return errors.Join(failure, r.closeInbox(), r.close())
}

// closeInbox tells the store that the process has ended in order.
func (r *run) closeInbox() error {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTime)
	defer cancel()
	if err := r.inbox.Close(ctx); err != nil {
		return fmt.Errorf("router: %w", withoutSecrets(err, r.config.Store.URL))
	}
	return nil
}

// logStop logs why the service stops, and which handlers still run.
func (r *run) logStop(why error) {
	line := "millpond: the service stops, because its context ended"
	if errors.Is(why, errSignal) {
		line = "millpond: the service stops; another signal ends the process at once"
	}
	attrs := []any{slog.Duration("drain_timeout", r.config.DrainTimeout)}
	if still := r.drain.still(); still != "" {
		attrs = append(attrs, slog.String("running", still))
	}
	r.log.Info(line, attrs...)
}

func (e ending) failure(u URL) error {
	if e.err == nil {
		return fmt.Errorf("router: %s ended by itself", e.name)
	}
	return fmt.Errorf("router: %s ended: %w", e.name, withoutSecrets(e.err, u))
}

// abandon returns without the handlers that do not end. Closing the store would wait for them.
func (r *run) abandon() error {
	r.drain.cutOff()
	closed := make(chan error, 1)
	go func() { closed <- r.close() }()
	err := fmt.Errorf("router: the drain timeout of %s is over, no handler runs, and a subscriber of the broker has not ended", r.config.DrainTimeout)
	if still := r.drain.still(); still != "" {
		err = fmt.Errorf("router: %w after %s: %s", ErrDrainTimeout, r.config.DrainTimeout, still)
	}
	select {
	case closeErr := <-closed:
		return errors.Join(err, closeErr)
	case <-time.After(drainSlack):
		return err
	}
}

// closeSubscribers closes all subscribers at once and waits for them.
func (r *run) closeSubscribers() {
	var closing sync.WaitGroup
	for _, h := range r.handlers {
		if h.subscriber != nil {
			closing.Go(func() {
				if err := h.subscriber.Close(); err != nil {
					r.log.Warn("millpond: a subscriber could not be closed", slog.String("handler", h.name), slog.String("error", err.Error()))
				}
			})
		}
	}
	closing.Wait()
}
