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

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// Service is a program's handlers, wired to a broker and a store. Handlers are added
// before Run, by one goroutine.
type Service struct {
	wiring *wiring

	handlers    []*handler
	middlewares []message.HandlerMiddleware
	mistakes    []error // errors of calls before Run

	mu      sync.Mutex
	running *run // set by Run
	closed  bool
}

// handler has the arguments of one call of Handle or HandleAndPublish.
type handler struct {
	name, topic string
	handle      message.HandlerFunc
	typed       message.NoPublishHandlerFunc // the handler of Handle
	publishes   *publishing                  // nil: added by Handle
	subscriber  message.Subscriber           // set when it starts
	added       *message.Handler
}

// Load is [LoadConfig] and [New]. A program that adds settings to the file, such as its own
// logger, calls both itself.
func Load(ctx context.Context, path string) (*Service, error) {
	c, err := LoadConfig(path)
	if err != nil {
		return nil, err
	}
	return New(ctx, c)
}

// New opens the broker and the store. The error names every problem: a [*ConfigError], a scheme
// without an adapter, a server that cannot be reached. A service that is not run must be closed.
func New(ctx context.Context, c Config) (*Service, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.setDefaults()
	c.Program.Brokers = cmp.Or(c.Program.Brokers, brokers.DefaultMux())
	c.Program.Stores = cmp.Or(c.Program.Stores, stores.DefaultMux())
	if err := errors.Join(c.adapters(), c.importTelemetry()); err != nil {
		return nil, err
	}
	w := &wiring{config: c, log: c.Program.Logger}
	if w.log == nil {
		w.log = c.Log.logger(os.Stderr)
	}
	for _, one := range c.Warnings() {
		w.log.Warn("millpond: the configuration may not be what is meant", slog.String("field", one.Field), slog.String("where", one.Where), slog.String("warning", one.Text))
	}
	if err := w.open(ctx); err != nil {
		return nil, errors.Join(err, w.close(nil))
	}
	return &Service{wiring: w}, nil
}

// String returns the service with its broker and store, without secrets.
func (s *Service) String() string {
	c := &s.wiring.config
	return fmt.Sprintf("service %q (broker %s, store %s)", c.Service, c.Broker.URL, c.Store.URL)
}

// Format implements fmt.Formatter: every verb prints what String returns.
func (s *Service) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// Handle adds a handler of a topic. The service's name and the handler's name form the consumer:
// a renamed handler runs redelivered messages again, unless handlers.<name>.renamed_from in the
// configuration has the old name. Run returns errors about the arguments. Handle panics after Run
// was called.
func (s *Service) Handle(name, topic string, h message.NoPublishHandlerFunc) {
	s.mustNotRun("Handle")
	added := &handler{name: name, topic: topic, typed: h}
	if h != nil {
		added.handle = func(msg *message.Message) ([]*message.Message, error) { return nil, h(msg) }
	}
	s.add(added)
}

func (s *Service) add(h *handler) {
	name, topic := h.name, h.topic
	bad := func(text string) {
		s.mistakes = append(s.mistakes, fmt.Errorf("router: handler %q: %s", name, text))
	}
	switch {
	case (stores.Consumer{Service: s.wiring.config.Service, Handler: name}).Validate() != nil:
		bad("its name cannot name a consumer: use a short one without control characters")
	case slices.ContainsFunc(s.handlers, func(other *handler) bool { return other.name == name }):
		bad("two handlers have this name: give each its own")
	case topic == "":
		bad("its topic is empty: name the topic that it reads")
	case h.handle == nil:
		bad("its function is nil")
	}
	s.handlers = append(s.handlers, h)
}

// Use adds middlewares around the inbox of every handler, the first outermost, for messages from
// the broker and for retried messages. They see an error only if a message is given back. A
// message is kept as it reached the first of them, so a middleware that decrypts messages
// decrypts each once per attempt. Use panics after Run was called.
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
	if s.running != nil {
		panic("router: Service." + method + " was called after Run")
	}
}

// Watermill returns the router that runs the handlers, to configure it further. Handlers
// that are added to it directly run without the inbox. Run runs and closes it.
func (s *Service) Watermill() *message.Router { return s.wiring.watermill }

// Store returns the store, which Run closes.
func (s *Service) Store() stores.Store { return s.wiring.store }

// Broker returns the broker, which Run closes.
func (s *Service) Broker() brokers.Broker { return s.wiring.broker }

// Publisher returns a publisher on the service's broker, which Run closes after the
// handlers have ended. It takes no part in a handler's transaction: do not use it for
// messages that must be published if, and only if, the effects are committed.
func (s *Service) Publisher() message.Publisher { return s.wiring.publisher }

// Config returns the service's configuration, including defaults.
func (s *Service) Config() Config { return s.wiring.config }

// Close closes everything that New opened. Run calls it; only a service that is never run
// needs it. It may be called many times.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.running == nil {
		return s.wiring.close(nil)
	}
	return s.wiring.close(s.running.http.Load().closer())
}
