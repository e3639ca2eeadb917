package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/internal/testenv"
)

// fault spoils one thing of a good broker. Every field may be nil.
type fault struct {
	config  func(c *memory.Config)
	caps    func(c *brokers.Capabilities)
	group   func(c *brokers.SubscriberConfig) // before a subscriber is opened
	hand    func(r *relay, inner *message.Message, outer *message.Message, d *brokers.Delivery)
	context func(ctx context.Context, msg *message.Message, d brokers.Delivery) context.Context
	nack    func(r *relay, outer *message.Message, g *brokers.GiveBack) (ack bool)
	unread  func(inner *message.Message) // a message in hand when the intake ends
	kill    func(inner *message.Message) // each unsettled message of a killed consumer
	lateAck func(r *relay, outer *message.Message)
	publish func(p message.Publisher, topic string, messages []*message.Message) error
	each    func(errs []error) []error
	join    func(r *relay)                                     // a subscriber subscribes
	restore func(handed []*message.Message) []*message.Message // by a restart, of what was handed out
	timeout time.Duration                                      // of a delivery, after which it comes again

	askMessage          bool // for the give-back, instead of the context that was handed out
	nackOnEnd           bool // of the message's context
	closeAbandons       bool
	publisherNoClose    bool
	subscribeOtherErr   bool
	noMarks             bool // undecodable messages are not marked
	losesAfterRestart   bool // what is published then
	repeatsAfterRestart bool // what is acked then
	noForeign           bool // messages of other producers are marked undecodable
}

// relay is a broker that passes everything through, except for its fault.
type relay struct {
	*memory.Broker
	fault fault

	mu        sync.Mutex
	edits     map[string]message.Metadata // of handlers, by UUID
	current   map[string]*message.Message // the inner message of the newest delivery
	seen      map[string]bool
	repeated  map[string]bool
	handed    []*message.Message // inner messages, to all subscribers
	published int
	joined    int // Subscribe calls
	restarted bool
}

func openRelay(t testing.TB, f fault, limit int) *relay {
	config := memory.Config{Capacity: 20_000, DeliveryLimit: limit, KeyMetadata: "customer"}
	if f.config != nil {
		f.config(&config)
	}
	inner, err := memory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return &relay{
		Broker: inner, fault: f,
		edits:   make(map[string]message.Metadata),
		current: make(map[string]*message.Message),
		seen:    make(map[string]bool), repeated: make(map[string]bool),
	}
}

func (r *relay) Capabilities() brokers.Capabilities {
	c := r.Broker.Capabilities()
	if r.fault.caps != nil {
		r.fault.caps(&c)
	}
	return c
}

// Names of metadata by which the relay knows what kind of message it plays.
const (
	undecodableMark = "undecodable"
	foreignMark     = "foreign"
)

func relayHarness(f fault) Harness {
	h := Harness{
		Open:          func(t testing.TB) brokers.Broker { return openRelay(t, f, 0) },
		OpenLimited:   func(t testing.TB, limit int) brokers.Broker { return openRelay(t, f, limit) },
		Kill:          func(_ testing.TB, _ brokers.Broker, s message.Subscriber) { s.(*relaySubscriber).kill() },
		OldMessages:   true,
		KeyMetadata:   "customer",
		KeptFreesSlot: true,
	}
	publish := func(t testing.TB, b brokers.Broker, topic string, msg *message.Message) {
		p, err := b.Publisher(brokers.PublisherConfig{})
		if err == nil {
			err = p.Publish(topic, msg)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h.PublishForeign = func(t testing.TB, b brokers.Broker, topic string, payload []byte) {
		msg := message.NewMessage("", payload)
		msg.Metadata.Set(foreignMark, "yes")
		publish(t, b, topic, msg)
	}
	h.PublishHeaders = func(t testing.TB, b brokers.Broker, topic, header string, values []string) {
		msg := message.NewMessage("", nil)
		last := len(values) - 1
		for i, value := range values[:last] {
			msg.Metadata.Set(fmt.Sprintf("%s[%d]", header, i), value)
		}
		msg.Metadata.Set(header, values[last])
		publish(t, b, topic, msg)
	}
	h.OpenRestartable = func(t testing.TB) (brokers.Broker, func()) {
		r := openRelay(t, f, 0)
		return r, func() { r.restart(t) }
	}
	h.PublishUndecodable = func(t testing.TB, b brokers.Broker, topic string) {
		msg := message.NewMessage("", []byte("garbage"))
		msg.Metadata.Set(undecodableMark, "yes")
		publish(t, b, topic, msg)
	}
	h.setDefaults()
	return h
}

// restart plays the end of the server and its start, when all has been handed out.
func (r *relay) restart(t testing.TB) {
	testenv.Eventually(t, "everything was handed out", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.handed) == r.published
	})
	r.mu.Lock()
	r.restarted = true
	r.mu.Unlock()
	if r.fault.restore != nil {
		r.again(r.fault.restore(r.handed)...)
	}
}

// again delivers messages that were settled.
func (r *relay) again(messages ...*message.Message) {
	p, err := r.Broker.Publisher(brokers.PublisherConfig{})
	for _, msg := range messages {
		if d, ok := brokers.DeliveryOf(msg); ok && err == nil {
			err = p.Publish(d.Topic, msg.Copy())
		}
	}
	if err != nil {
		panic(err)
	}
}

func (r *relay) Publisher(c brokers.PublisherConfig) (message.Publisher, error) {
	p, err := r.Broker.Publisher(c)
	if err != nil {
		return nil, err
	}
	return &relayPublisher{Publisher: p, relay: r, fault: r.fault}, nil
}

type relayPublisher struct {
	message.Publisher
	relay *relay
	fault fault
}

func (p *relayPublisher) Publish(topic string, messages ...*message.Message) error {
	p.relay.mu.Lock()
	lost := p.relay.restarted && p.fault.losesAfterRestart
	p.relay.published += len(messages)
	p.relay.mu.Unlock()
	if lost {
		return nil
	}
	if p.fault.publish != nil {
		return p.fault.publish(p.Publisher, topic, messages)
	}
	return p.Publisher.Publish(topic, messages...)
}

func (p *relayPublisher) PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error {
	errs := p.Publisher.(brokers.EachPublisher).PublishEach(ctx, topic, messages...)
	if p.fault.each != nil {
		return p.fault.each(errs)
	}
	return errs
}

func (p *relayPublisher) Close() error {
	if p.fault.publisherNoClose {
		return nil
	}
	return p.Publisher.Close()
}

func (r *relay) Subscriber(c brokers.SubscriberConfig) (message.Subscriber, error) {
	if r.fault.group != nil {
		r.fault.group(&c)
	}
	s, err := r.Broker.Subscriber(c)
	if err != nil {
		return nil, err
	}
	return &relaySubscriber{Subscriber: s.(*memory.Subscriber), relay: r, dead: make(chan struct{})}, nil
}

type relaySubscriber struct {
	*memory.Subscriber
	relay *relay
	once  sync.Once
	dead  chan struct{} // closed by kill

	readers sync.WaitGroup

	mu     sync.Mutex
	handed []*message.Message // inner messages, settled or not
}

var errSomethingElse = errors.New("something else")

func (s *relaySubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		if s.relay.fault.subscribeOtherErr {
			return nil, errSomethingElse
		}
		return nil, err
	}
	s.relay.mu.Lock()
	s.relay.joined++
	if s.relay.fault.join != nil {
		s.relay.fault.join(s.relay)
	}
	s.relay.mu.Unlock()
	out := make(chan *message.Message)
	s.readers.Go(func() {
		defer close(out)
		for inner := range in {
			outer := s.relay.dress(inner)
			ctx := outer.Context() // a router replaces it when it has the message
			s.mu.Lock()
			s.handed = append(s.handed, inner)
			s.mu.Unlock()
			select {
			case out <- outer:
				go s.pass(ctx, inner, outer)
			case <-inner.Context().Done():
				if s.relay.fault.unread != nil {
					s.relay.fault.unread(inner)
				}
				inner.Nack()
			}
		}
	})
	return out, nil
}

// dress makes the message that the consumer sees.
func (r *relay) dress(inner *message.Message) *message.Message {
	outer := inner.Copy()
	d, _ := brokers.DeliveryOf(inner)
	if outer.Metadata[undecodableMark] != "" && !r.fault.noMarks || outer.Metadata[foreignMark] != "" && r.fault.noForeign {
		d.Undecodable = errSomethingElse
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current[inner.UUID] = inner
	r.handed = append(r.handed, inner)
	if r.fault.hand != nil {
		r.fault.hand(r, inner, outer, &d)
	}
	r.seen[inner.UUID] = true
	if r.fault.context != nil {
		outer.SetContext(r.fault.context(inner.Context(), outer, d))
	} else {
		outer.SetContext(brokers.WithDelivery(inner.Context(), outer, d))
	}
	return outer
}

// pass hands the consumer's answer on.
func (s *relaySubscriber) pass(ctx context.Context, inner, outer *message.Message) {
	f, r := s.relay.fault, s.relay
	var ended <-chan struct{}
	if f.nackOnEnd {
		ended = inner.Context().Done()
	}
	var timeout <-chan time.Time
	if f.timeout > 0 {
		timeout = time.After(f.timeout)
	}
	select {
	case <-timeout:
		inner.Nack()
	case <-outer.Acked():
		if f.nackOnEnd && inner.Context().Err() != nil {
			inner.Nack() // as if it had been noticed at once
			return
		}
		inner.Ack()
		if r.repeats(inner.UUID) {
			r.again(inner)
		}
	case <-outer.Nacked():
		if f.askMessage {
			ctx = outer.Context()
		}
		g := brokers.GiveBackFrom(ctx)
		if f.nack != nil && f.nack(r, outer, &g) {
			inner.Ack()
			return
		}
		brokers.SetGiveBack(inner, g)
		inner.Nack()
	case <-ended:
		inner.Nack()
	case <-s.dead:
		if f.lateAck != nil {
			select {
			case <-outer.Acked():
				f.lateAck(r, outer)
			case <-time.After(time.Second):
			}
		}
	}
}

// repeats reports whether the message, which is acked, is to come again: once.
func (r *relay) repeats(uuid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.fault.repeatsAfterRestart || !r.restarted || r.repeated[uuid] {
		return false
	}
	r.repeated[uuid] = true
	return true
}

func (s *relaySubscriber) kill() {
	s.once.Do(func() { close(s.dead) })
	if spoil := s.relay.fault.kill; spoil != nil {
		s.mu.Lock()
		for _, inner := range s.handed {
			spoil(inner)
		}
		s.mu.Unlock()
	}
	s.Abandon()
}

func (s *relaySubscriber) Close() error {
	if s.relay.fault.closeAbandons {
		s.kill()
		return nil
	}
	err := s.Subscriber.Close()
	s.readers.Wait()
	return err
}
