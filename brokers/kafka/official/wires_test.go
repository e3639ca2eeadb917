package official_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
)

// tapped is a broker whose subscribers can be cut off.
type tapped struct {
	*official.Broker

	addresses []string
	laying    *laying
}

// laying puts wires into the client that is opened when a subscriber subscribes. Clients
// that are opened beside it may get them, too, unless they wait.
type laying struct {
	mu  sync.Mutex // held while a client is opened
	now atomic.Pointer[wires]
}

func (l *laying) lay(config *sarama.Config) {
	if w := l.now.Load(); w != nil {
		config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, w
	}
}

func (b tapped) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	b.laying.mu.Lock()
	defer b.laying.mu.Unlock()
	return b.Broker.Publisher(config)
}

func (b tapped) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	s, err := b.Broker.Subscriber(config)
	if err != nil {
		return nil, err
	}
	return subscriber{s, b.laying, &wires{}}, nil
}

type subscriber struct {
	message.Subscriber

	laying *laying
	wires  *wires
}

func (s subscriber) SubscribeInitialize(topic string) error {
	return s.Subscriber.(message.SubscribeInitializer).SubscribeInitialize(topic)
}

func (s subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.laying.mu.Lock()
	defer s.laying.mu.Unlock()
	s.laying.now.Store(s.wires)
	defer s.laying.now.Store(nil)
	return s.Subscriber.Subscribe(ctx, topic)
}

var errCut = errors.New("the wires were cut")

// wires are the connections of one subscriber.
type wires struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

// Dial implements sarama's dialer.
func (w *wires) Dial(network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errCut
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), network, address)
	w.conns = append(w.conns, conn)
	return conn, err
}

// cut kills the connections, now and for ever.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, conn := range w.conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}
