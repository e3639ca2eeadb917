package amqp

import (
	"context"
	"net"
	"sync"

	"github.com/rabbitmq/amqp091-go"
)

// Wires cuts connections.
type Wires struct {
	broker *Broker

	mu    sync.Mutex
	dead  map[*link]bool
	conns map[*link][]net.Conn
}

// Tapped connects like New, through wires.
func Tapped(ctx context.Context, config Config) (*Broker, *Wires, error) {
	w := &Wires{dead: make(map[*link]bool), conns: make(map[*link][]net.Conn)}
	b, err := connect(ctx, config, w.pass)
	w.broker = b
	return b, w, err
}

func (w *Wires) pass(l *link, conn net.Conn) net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead[l] {
		_ = conn.Close()
	}
	w.conns[l] = append(w.conns[l], conn)
	return conn
}

// Kill cuts the connection of a subscriber, now and for ever, which is then as good as
// dead.
func (w *Wires) Kill(s *Subscriber) {
	w.mu.Lock()
	w.dead[s.consuming] = true
	w.mu.Unlock()
	w.cut(s.consuming)
}

// Revive takes it back that a subscriber is as good as dead.
func (w *Wires) Revive(s *Subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[s.consuming] = false
}

// CutSubscriber cuts the connection of a subscriber, which makes another one.
func (w *Wires) CutSubscriber(s *Subscriber) { w.cut(s.consuming) }

// CutPublishing cuts the connection of all publishers.
func (w *Wires) CutPublishing() { w.cut(w.broker.publishing) }

// cut ends connections without a word to the server.
func (w *Wires) cut(l *link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns[l] {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	w.conns[l] = nil
}

// Step is step.
var Step = step

// Attempt publishes an empty message as one attempt of Publish does, and returns why it
// was not taken.
func Attempt(ctx context.Context, b *Broker, topic string) error {
	w := &work{
		name:    "topic " + topic,
		declare: func(c *connection) error { return b.declareRoute(c, topic) },
		items:   []*outgoing{{route: b.config.Topology.route(topic)}},
		errs:    make([]error, 1),
		open:    []int{0},
	}
	if err := b.try(ctx, w); err != nil {
		return err
	}
	return w.errs[0]
}

// Acks is acks.
type Acks struct{ acks acks }

// Delivery is one of any acknowledger's.
type Delivery struct {
	acks     *acks
	delivery *delivery
}

// Deliver notes a delivery.
func (a *Acks) Deliver(native *amqp091.Delivery) Delivery {
	d := &delivery{session: &session{}, native: native}
	a.acks.deliver(d)
	return Delivery{&a.acks, d}
}

// Ack acks it.
func (d Delivery) Ack() { d.acks.ack(d.delivery) }

// Reject gives it back.
func (d Delivery) Reject() {
	_ = d.delivery.native.Reject(true)
	d.acks.forget(d.delivery)
}
