package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Run checks how everything fits together, registers the handlers and runs them until ctx
// ends or the process gets SIGTERM or SIGINT. Then the intake stops, handlers that run may
// finish, and when the drain timeout is nearly over the contexts of those that have not are
// canceled, so that they are rolled back; their messages come again. Everything is closed
// in the end.
//
// It returns nil after such a stop. Otherwise the error says what did not fit, or what has
// ended by itself; it wraps [ErrDrainTimeout] if handlers could not be ended. Run may be
// called once.
func (s *Service) Run(ctx context.Context) error {
	if err := s.begin(); err != nil {
		return err
	}
	if !s.config.Program.NoSignals {
		var stop context.CancelFunc
		ctx, stop = untilSignal(ctx)
		defer stop()
	}
	parts, err := s.start(ctx)
	if err != nil {
		s.closeSubscribers()
		err = errors.Join(err, s.Close())
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil // it was stopped before it had begun
		}
		return err
	}
	return s.run(ctx, parts)
}

// errSignal is why the context of a service ends that gets a signal.
var errSignal = errors.New("router: the process got a signal")

// untilSignal returns a context that ends with the first signal. From then on signals do
// what they do without a service, which is to end the process at once.
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
		signal.Stop(signals) // before anybody knows
		cancel(why)
	}()
	return ctx, func() { cancel(nil) }
}

func (s *Service) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errors.New("router: Service.Run was called twice")
	}
	if s.closed {
		return errors.New("router: Service.Run was called after Close")
	}
	s.started = true
	return nil
}

// part is what runs until its context ends.
type part struct {
	name string
	run  func(context.Context) error
}

// start does everything that can be done before the first message.
func (s *Service) start(ctx context.Context) ([]part, error) {
	if err := s.fit(); err != nil {
		return nil, err
	}
	s.advise()
	if err := s.listen(); err != nil {
		return nil, err
	}
	if err := s.prepareStore(ctx); err != nil {
		return nil, err
	}
	retried := make(map[string]message.HandlerFunc)
	for _, h := range s.handlers {
		if err := s.subscribe(h); err != nil {
			return nil, err
		}
		handle := s.drain.handler(h.name, h.handle)
		retried[h.name] = func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) }
		added := s.watermill.AddConsumerHandler(h.name, h.topic, h.subscriber, handle)
		if len(s.middlewares) > 0 {
			added.AddMiddleware(middleware.Arrival)
			added.AddMiddleware(s.middlewares...)
		}
		added.AddMiddleware(s.inbox.Middleware)
		h.added = added
	}
	parts := []part{{"the router", s.watermill.Run}, {"a subscriber", s.watch}}
	if s.config.RetryWorker.Off || len(retried) == 0 {
		return parts, nil
	}
	worker, err := middleware.NewRetryWorker(s.inbox, middleware.RetryWorkerConfig{
		Handlers:     retried,
		Middlewares:  s.middlewares,
		Concurrency:  s.config.RetryWorker.Concurrency,
		PollInterval: s.config.RetryWorker.PollInterval,
		DrainTimeout: s.config.DrainTimeout + drainSlack,
	})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return append(parts, part{"the retry worker", worker.Run}), nil
}

func (s *Service) subscribe(h *handler) (err error) {
	h.subscriber, err = s.broker.Subscriber(brokers.SubscriberConfig{
		Group:        s.config.groupOf(h.name),
		InFlight:     s.config.inFlightOf(h.name),
		DrainTimeout: s.config.DrainTimeout,
		Logger:       watermill.NewSlogLogger(s.log),
	})
	if err != nil {
		return fmt.Errorf("router: handler %q: %w", h.name, withoutSecrets(err, s.config.Broker.URL))
	}
	return nil
}

// startTimeout bounds what the store is asked before the first message.
const startTimeout = time.Minute

// prepareStore sees to the tables and registers every consumer, so that a taken name is an
// error now rather than at the first message.
func (s *Service) prepareStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if s.config.Store.Migrate {
		applied, err := s.store.Migrate(ctx)
		if err != nil {
			return fmt.Errorf("router: store.migrate: %w", withoutSecrets(err, s.config.Store.URL))
		}
		for _, m := range applied {
			s.log.Info("millpond: a step of the store's tables was applied", slog.Int("version", m.Version), slog.String("name", m.Name))
		}
	}
	if err := s.store.Validate(ctx); err != nil {
		if errors.Is(err, stores.ErrNotMigrated) {
			return fmt.Errorf("router: %s %s: run millpond migrate up, or set store.migrate: true: %w", s.config.named("store.url"), s.config.Store.URL, withoutSecrets(err, s.config.Store.URL))
		}
		return fmt.Errorf("router: %s %s: %w", s.config.named("store.url"), s.config.Store.URL, withoutSecrets(err, s.config.Store.URL))
	}
	s.warnOfNewNames(ctx)
	var errs []error
	for _, h := range s.handlers {
		if err := s.inbox.Register(ctx, h.name, h.topic); err != nil {
			errs = append(errs, fmt.Errorf("router: handler %q: %w", h.name, withoutSecrets(err, s.config.Store.URL)))
		}
	}
	return errors.Join(errs...)
}

// watch returns when a handler's subscriber ends by itself. The others would go on, and
// nobody would notice.
func (s *Service) watch(ctx context.Context) error {
	select {
	case <-s.watermill.Running():
	case <-ctx.Done():
		return nil
	}
	ended := make(chan string)
	for _, h := range s.handlers {
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
	s.log.Info("millpond: the service runs", slog.String("service", s.config.Service), slog.Int("handlers", len(s.handlers)),
		slog.String("broker", s.config.Broker.URL.String()), slog.String("store", s.config.Store.URL.String()))
	select {
	case name := <-ended:
		return fmt.Errorf("handler %q gets no more messages", name)
	case <-ctx.Done():
		return nil
	}
}

// ending is how a part has ended.
type ending struct {
	part
	err error
}

// run runs the parts until the context ends, or one of them, and then stops.
func (s *Service) run(ctx context.Context, parts []part) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ends := make(chan ending, len(parts))
	for _, p := range parts {
		go func() { ends <- ending{p, p.run(work)} }()
	}
	left := len(parts)
	var failure error
	closeRouter := true
	select {
	case <-ctx.Done():
		s.logStop(context.Cause(ctx))
	case end := <-ends:
		left--
		failure = end.failure(s.config.Broker.URL)
		// A router whose start has failed waits for handlers that have never begun.
		closeRouter = end.name != parts[0].name
		s.log.Error("millpond: the service stops, because a part of it has ended", slog.String("error", failure.Error()))
	}

	s.stopping.Store(true)
	begun := time.Now()
	drained := s.config.DrainTimeout
	cut := time.AfterFunc(drained-min(rollbackTime, drained/5), func() {
		if still := s.drain.still(); still != "" {
			s.log.Warn("millpond: handlers have not finished in time and are rolled back", slog.String("running", still))
		}
		s.drain.cutOff()
	})
	defer cut.Stop()
	deadline := time.NewTimer(drained + drainSlack)
	defer deadline.Stop()

	stop()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if closeRouter {
			_ = s.watermill.Close() // how it ends is known from Run
		}
		s.closeSubscribers()
	}()
	for left > 0 || closed != nil {
		select {
		case end := <-ends:
			left--
			if end.err != nil && failure == nil {
				failure = end.failure(s.config.Broker.URL)
			}
		case <-closed:
			closed = nil
		case <-deadline.C:
			return errors.Join(failure, s.abandon())
		}
	}
	s.log.Info("millpond: the service has stopped", slog.Duration("after", time.Since(begun).Round(time.Millisecond)))
	return errors.Join(failure, s.Close())
}

// logStop says why the service stops, and which handlers it waits for.
func (s *Service) logStop(why error) {
	line := "millpond: the service stops, because its context has ended"
	if errors.Is(why, errSignal) {
		line = "millpond: the service stops; another signal ends the process at once"
	}
	attrs := []any{slog.Duration("drain_timeout", s.config.DrainTimeout)}
	if still := s.drain.still(); still != "" {
		attrs = append(attrs, slog.String("running", still))
	}
	s.log.Info(line, attrs...)
}

func (e ending) failure(u URL) error {
	if e.err == nil {
		return fmt.Errorf("router: %s has ended by itself", e.name)
	}
	return fmt.Errorf("router: %s has ended: %w", e.name, withoutSecrets(e.err, u))
}

// abandon gives up on handlers that do not end. Closing the store would wait for them.
func (s *Service) abandon() error {
	s.drain.cutOff()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	err := fmt.Errorf("router: the drain timeout of %s is over, no handler runs, and the broker's subscriber has not ended", s.config.DrainTimeout)
	if still := s.drain.still(); still != "" {
		err = fmt.Errorf("router: %w after %s: %s", ErrDrainTimeout, s.config.DrainTimeout, still)
	}
	select {
	case closeErr := <-closed:
		return errors.Join(err, closeErr)
	case <-time.After(drainSlack):
		return err
	}
}

// closeSubscribers closes all of them at once and waits for them.
func (s *Service) closeSubscribers() {
	var closing sync.WaitGroup
	for _, h := range s.handlers {
		if h.subscriber != nil {
			closing.Go(func() {
				if err := h.subscriber.Close(); err != nil {
					s.log.Warn("millpond: a subscriber could not be closed", slog.String("handler", h.name), slog.String("error", err.Error()))
				}
			})
		}
	}
	closing.Wait()
}
