package router

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// relayConnections are those that a relay takes of the store: to read, to write down what was
// published, to renew its leases, and to count.
const relayConnections = 4

// publishing is where what a handler returns goes.
type publishing struct{ destination, topic string }

// HandleAndPublish adds a handler that returns messages, as Handle adds one that does not. They
// are written by the commit of the handler's transaction, and published by a relay then, to
// the topic publishTopic of a destination: "" is the service's broker, others are named in
// Relay.Publishers of the configuration. Messages can go to other topics and destinations, too:
// publish them in the handler through an outbox.Publisher, as cqrs buses do.
func (s *Service) HandleAndPublish(name, topic, destination, publishTopic string, h message.HandlerFunc) {
	s.mustNotRun("HandleAndPublish")
	s.add(&handler{name: name, topic: topic, handle: h, publishes: &publishing{destination, publishTopic}})
}

// route adds a handler to Watermill's router.
func (r *run) route(h *handler, handle message.HandlerFunc) *message.Handler {
	if p := h.publishes; p != nil {
		return r.watermill.AddHandler(h.name, h.topic, h.subscriber, p.topic, outbox.Publisher(p.destination), handle)
	}
	return r.watermill.AddConsumerHandler(h.name, h.topic, h.subscriber, func(msg *message.Message) error {
		_, err := handle(msg)
		return err
	})
}

// poked is the relay as the inbox knows it, which is there before the relay.
type poked struct{ relay atomic.Pointer[outbox.Relay] }

// Poke implements middleware.Outputs.Relay.
func (p *poked) Poke(numbers ...int64) {
	if relay := p.relay.Load(); relay != nil {
		relay.Poke(numbers...)
	}
}

// outputs are what the program has configured, or every service has. With a relay in this
// process the destinations are known.
func (w *wiring) outputs() *middleware.Outputs {
	var o middleware.Outputs
	if own := w.config.Inbox.Outputs; own != nil {
		o = *own
	} else if _, ok := w.store.(stores.Outbox); !ok {
		return nil
	}
	if o.Relay == nil && w.config.Relay.On {
		o.Relay = &w.relay
	}
	if o.Destinations == nil && w.config.Relay.On {
		o.Destinations = map[string]middleware.Destination{"": {}}
		for name := range w.config.Relay.Publishers {
			o.Destinations[name] = middleware.Destination{}
		}
	}
	return &o
}

// destination checks where a handler publishes.
func (f *fitting) destination(h *handler) {
	if h.publishes == nil {
		return
	}
	if f.inboxed.Outputs == nil {
		f.badf("handler %q returns messages, and the store, a %T, has no outbox: use Handle, or another store.url", h.name, f.store)
		return
	}
	all := f.inboxed.Outputs.Destinations
	if _, known := all[h.publishes.destination]; !known && all != nil {
		f.badf("handler %q publishes to the destination %q, which no relay of this service has: there are %q; add it to Relay.Publishers",
			h.name, h.publishes.destination, slices.Sorted(maps.Keys(all)))
	}
}

// makeRelay makes the relay if it is on.
func (r *run) makeRelay() error {
	c := r.config.Relay.Config
	if !r.config.Relay.On {
		return nil
	}
	store, ok := r.store.(stores.Outbox)
	if !ok {
		return fmt.Errorf("router: relay.on is true, and the store, a %T, has no outbox: set it to false", r.store)
	}
	publishers := map[string]message.Publisher{"": r.publisher}
	maps.Copy(publishers, c.Publishers)
	c.Publishers, c.DrainTimeout = publishers, r.config.DrainTimeout
	if c.Codec == nil {
		c.Codec = r.inboxed.Keep.Codec
	}
	if c.Logger == nil {
		c.Logger = r.log
	}
	if hook, ok := r.telemetry.Hook.(outbox.Hook); ok && c.Hook == nil {
		c.Hook = hook
	}
	relay, err := outbox.New(store, c)
	if err != nil {
		return fmt.Errorf("router: relay: %w", err)
	}
	r.relay.relay.Store(relay)
	return nil
}

// backlog says what the relay has to do, for /readyz.
func (r *run) backlog() string {
	waiting, failed, oldest, more := 0, 0, time.Duration(0), ""
	for _, c := range r.relay.relay.Load().Backlog() {
		if c.State == stores.OutputFailed {
			failed += c.N
			continue
		}
		waiting, oldest = waiting+c.N, max(oldest, c.Age)
		if c.More {
			more = "+"
		}
	}
	return fmt.Sprintf("ok, %d%s messages wait, the oldest for %s, and %d are dead letters", waiting, more, oldest.Round(time.Second), failed)
}
