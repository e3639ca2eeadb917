package router

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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
// destinations or Relay.Publishers of the configuration. publishTopic may be empty if the
// destination has a topic there. Messages can go to other topics and destinations, too:
// publish them in the handler through an outbox.Publisher, as cqrs buses do.
func (s *Service) HandleAndPublish(name, topic, destination, publishTopic string, h message.HandlerFunc) {
	s.mustNotRun("HandleAndPublish")
	s.add(&handler{name: name, topic: topic, handle: h, publishes: &publishing{destination, publishTopic}})
}

// route adds a handler to Watermill's router.
func (r *run) route(h *handler, handle message.HandlerFunc) *message.Handler {
	if p := h.publishes; p != nil {
		topic := cmp.Or(p.topic, r.inboxed.Outputs.Destinations[p.destination].Topic)
		return r.watermill.AddHandler(h.name, h.topic, h.subscriber, topic, outbox.Publisher(p.destination), handle)
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
	waker, wakes := w.store.(stores.OutboxWaker)
	switch {
	case o.Relay != nil:
	case w.config.Relay.On:
		o.Relay = &w.relay
	case wakes && w.config.Relay.WakeInterval > 0: // it is others' relay
		o.Relay = outbox.NewWaker(waker, outbox.WakerConfig{Interval: w.config.Relay.WakeInterval, Logger: w.log})
	}
	if own := o.Destinations; own != nil || w.config.Relay.On || len(w.config.Destinations) > 0 {
		o.Destinations = make(map[string]middleware.Destination)
		for name, d := range w.config.Destinations {
			o.Destinations[name] = d.Destination
		}
		if own == nil {
			o.Destinations[""] = middleware.Destination{}
			for name := range w.config.Relay.Publishers {
				o.Destinations[name] = w.config.Destinations[name].Destination
			}
		}
		maps.Copy(o.Destinations, own)
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
	to, known := all[h.publishes.destination]
	switch topic := cmp.Or(h.publishes.topic, to.Topic); {
	case !known && all != nil:
		f.badf("handler %q publishes to the destination %q, which no relay of this service has: there are %q; add it to destinations, or to Relay.Publishers",
			h.name, h.publishes.destination, slices.Sorted(maps.Keys(all)))
	case topic == "":
		f.badf("handler %q: the topic that it publishes to is empty: name it, or destinations.%s.topic", h.name, h.publishes.destination)
	case len(to.Topics) > 0 && !slices.Contains(to.Topics, topic):
		f.badf("handler %q publishes to the topic %q, which is not one of destinations.%s.topics %q: add it there", h.name, topic, h.publishes.destination, to.Topics)
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
	c.Publishers, c.DrainTimeout = r.publishers(), r.relayEnds()
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

// publishers are those of the relay.
func (r *run) publishers() map[string]message.Publisher {
	all := map[string]message.Publisher{"": r.publisher}
	for _, d := range r.destinations {
		all[d.name] = d.relayed()
	}
	maps.Copy(all, r.config.Relay.Publishers)
	if r.config.Relay.External {
		for name := range r.inboxed.Outputs.Destinations {
			all[name] = outbox.External()
		}
	}
	if topic := r.config.Relay.ForwarderTopic; topic != "" {
		for name, p := range all {
			all[name] = outbox.Forwarder{Topic: topic}.Publisher(p)
		}
	}
	return all
}

// relayPart is the part of a service that ends after the others.
const relayPart = "the relay"

// relayEnds is the end of the drain timeout, which is left for the relay to end in.
func (r *run) relayEnds() time.Duration {
	return min(rollbackTime, r.config.DrainTimeout/5) / 2
}

// flush ends the relay when it has published what handlers have committed while the service
// stopped. Without handlers there is nothing of which that would be the end.
func (r *run) flush(l *lives) {
	defer l.endRelay()
	relay := r.relay.relay.Load()
	if relay == nil || len(r.handlers) == 0 {
		return
	}
	if err := relay.Flush(l.relaying); err != nil {
		r.log.Warn("millpond: the relay has not published everything before the service stopped; other relays publish the rest")
	}
}

// backlog says what the relay has to do, for /readyz.
func (r *run) backlog() string {
	waiting, failed, oldest, more := 0, 0, time.Duration(0), ""
	var unknown []string // that the relay has no publisher for
	for _, c := range r.relay.relay.Load().Backlog() {
		if _, ours := r.inboxed.Outputs.Destinations[c.Destination]; !ours && c.State == stores.OutputPending {
			unknown = append(unknown, strconv.Quote(c.Destination))
		}
		if c.State == stores.OutputFailed {
			failed += c.N
			continue
		}
		waiting, oldest = waiting+c.N, max(oldest, c.Age)
		if c.More {
			more = "+"
		}
	}
	line := fmt.Sprintf("ok, %d%s messages wait, the oldest for %s, and %d are dead letters", waiting, more, oldest.Round(time.Second), failed)
	if len(unknown) > 0 {
		line += "; some wait for destinations that this relay does not have: " + strings.Join(unknown, ", ")
	}
	return line
}
