package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Service is a program's handlers, wired to a broker and a store. Handlers are added
// before Run by one goroutine.
type Service struct {
	config    Config
	log       *slog.Logger
	broker    brokers.Broker
	store     stores.Store
	roomy     bool // the service has chosen the size of its pool
	publisher message.Publisher
	inbox     *middleware.Inbox
	inboxed   middleware.InboxConfig // what it was made of
	watermill *message.Router

	handlers    []*handler
	middlewares []message.HandlerMiddleware
	mistakes    []error // of calls before Run
	drain       *drain
	telemetry   Telemetry
	http        *httpServer
	stopping    atomic.Bool // the intake has ended, or is about to

	mu      sync.Mutex
	started bool
	closed  bool
}

// handler is one call of Handle.
type handler struct {
	name, topic string
	handle      message.NoPublishHandlerFunc
	subscriber  message.Subscriber // from its start on, as added
	added       *message.Handler
}

// Load is [LoadConfig] and [New]. A program that has something to add to the file, such as
// its own logger, calls the two.
func Load(ctx context.Context, path string) (*Service, error) {
	c, err := LoadConfig(path)
	if err != nil {
		return nil, err
	}
	return New(ctx, c)
}

// New opens the broker and the store. The error names everything that is wrong: a
// [*ConfigError], a scheme without an adapter, a server that cannot be reached. A service
// that is not run must be closed.
func New(ctx context.Context, c Config) (*Service, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.setDefaults()
	c.Program.Brokers = cmp.Or(c.Program.Brokers, brokers.DefaultMux())
	c.Program.Stores = cmp.Or(c.Program.Stores, stores.DefaultMux())
	if err := errors.Join(
		c.adapter("broker.url", c.Broker.URL, c.Program.Brokers.Schemes()),
		c.adapter("store.url", c.Store.URL, c.Program.Stores.Schemes()),
	); err != nil {
		return nil, err
	}
	s := &Service{config: c, log: c.Program.Logger, drain: newDrain()}
	if s.log == nil {
		s.log = c.Log.logger(os.Stderr)
	}
	for _, w := range c.Warnings() {
		s.log.Warn("millpond: the configuration may not be what is meant", slog.String("field", w.Field), slog.String("where", w.Where), slog.String("warning", w.Text))
	}
	if err := errors.Join(s.openBroker(ctx), s.openStore(ctx)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.openTelemetry(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	in := c.inboxConfig(s.publisher)
	if in.Logger == nil {
		in.Logger = s.log
	}
	if s.telemetry.Hook != nil {
		in.Hooks = append(slices.Clip(in.Hooks), s.telemetry.Hook)
	}
	s.inboxed = in
	var err error
	if s.inbox, err = middleware.NewInbox(s.store, in); err != nil {
		return nil, errors.Join(fmt.Errorf("router: %w", err), s.Close())
	}
	s.watermill, err = message.NewRouter(message.RouterConfig{CloseTimeout: c.DrainTimeout + drainSlack}, watermill.NewSlogLogger(s.quiet()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("router: %w", err), s.Close())
	}
	return s, nil
}

// String says which service it is.
func (s *Service) String() string {
	return fmt.Sprintf("service %q (broker %s, store %s)", s.config.Service, s.config.Broker.URL, s.config.Store.URL)
}

// Format implements fmt.Formatter: every verb prints what String returns.
func (s *Service) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

func (s *Service) openBroker(ctx context.Context) error {
	u := s.config.Broker.URL
	broker, err := s.config.Program.Brokers.Open(ctx, u.Reveal())
	if err != nil {
		return fmt.Errorf("router: %s %s: %w", s.config.named("broker.url"), u, withoutSecrets(err, u))
	}
	s.broker = broker
	publisher, err := s.broker.Publisher(brokers.PublisherConfig{Logger: watermill.NewSlogLogger(s.log)})
	if err != nil {
		return fmt.Errorf("router: %s %s: %w", s.config.named("broker.url"), u, withoutSecrets(err, u))
	}
	s.publisher = publisher
	return nil
}

func (s *Service) openStore(ctx context.Context) error {
	u := s.config.Store.URL
	store, err := s.config.Program.Stores.Open(ctx, u.Reveal())
	if err != nil {
		return fmt.Errorf("router: %s %s: %w", s.config.named("store.url"), u, withoutSecrets(err, u))
	}
	s.store = store
	if err := s.makeRoom(ctx); err != nil {
		return fmt.Errorf("router: %s %s: %w", s.config.named("store.url"), u, withoutSecrets(err, u))
	}
	if logging, ok := store.(interface{ SetLogger(l *slog.Logger) }); ok {
		logging.SetLogger(s.log)
	}
	return nil
}

// Handle adds a handler, which reads a topic under a name. With the service's name it
// forms the consumer: a handler that gets another name runs every message again that comes
// again, unless handlers.<name>.renamed_from in the configuration says what it was. What
// is wrong is an error of Run. Handle panics after Run was called.
func (s *Service) Handle(name, topic string, h message.NoPublishHandlerFunc) {
	s.mustNotRun("Handle")
	bad := func(format string, args ...any) {
		s.mistakes = append(s.mistakes, fmt.Errorf("router: handler %q: "+format, append([]any{name}, args...)...))
	}
	switch {
	case (stores.Consumer{Service: s.config.Service, Handler: name}).Validate() != nil:
		bad("its name is no name of a consumer: use a short one without control characters")
	case slices.ContainsFunc(s.handlers, func(other *handler) bool { return other.name == name }):
		bad("there are two of this name: give each its own")
	case topic == "":
		bad("its topic is empty: name the topic that it reads")
	case h == nil:
		bad("its function is nil")
	}
	s.handlers = append(s.handlers, &handler{name: name, topic: topic, handle: h})
}

// Use adds middlewares around the inbox of every handler, the first outermost, for
// messages from the broker and for those that are tried again. They see an error only if a
// message is given back. What is kept of a message is what came to the first of them, so one
// that opens messages opens each once in each attempt. Use panics after Run was called.
func (s *Service) Use(m ...message.HandlerMiddleware) {
	s.mustNotRun("Use")
	for _, one := range m {
		if name := functionName(one); name == instantAck {
			s.mistakes = append(s.mistakes, errors.New("router: Use(InstantAck) acks messages before their effects are committed, and loses those that fail: remove it"))
		}
	}
	s.middlewares = append(s.middlewares, m...)
}

func (s *Service) mustNotRun(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		panic("router: Service." + method + " was called after Run")
	}
}

// Watermill returns the router that runs the handlers, for everything else that it can do.
// Handlers that are added to it directly run without the inbox. It is run and closed by
// Run.
func (s *Service) Watermill() *message.Router { return s.watermill }

// Store returns the store, which Run closes.
func (s *Service) Store() stores.Store { return s.store }

// Broker returns the broker, which Run closes.
func (s *Service) Broker() brokers.Broker { return s.broker }

// Publisher returns a publisher on the service's broker, which Run closes after the
// handlers have ended. It does not take part in a handler's transaction: what must be
// published if, and only if, a message's effects are committed does not belong there.
func (s *Service) Publisher() message.Publisher { return s.publisher }

// Config returns what the service was made of, defaults included.
func (s *Service) Config() Config { return s.config }

// Close closes what New has opened. Run does it; only a service that is never run needs it.
// It may be called many times.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, c := range []struct {
		what   string
		closer io.Closer
	}{{"listener", s.http.closer()}, {"publisher", s.publisher}, {"broker", s.broker}, {"telemetry", s.telemetry.Closer}, {"store", s.store}} {
		if c.closer == nil {
			continue
		}
		if err := c.closer.Close(); err != nil {
			errs = append(errs, fmt.Errorf("router: cannot close the %s: %w", c.what, err))
		}
	}
	return errors.Join(errs...)
}

func (c LogConfig) logger(out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // it is one of four
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}

// quiet is the log without what Watermill's router says about every message, unless
// everything is wanted.
func (s *Service) quiet() *slog.Logger {
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		return s.log
	}
	return loglimit.OfRouter(s.log, middleware.ErrNotNow)
}
