package official_test

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

type dialed struct {
	conn net.Conn
	err  error
}

// dials lets a test hear of every connection; wait is called before each.
func dials(c *wmamqp.Config, wait func()) <-chan dialed {
	all := make(chan dialed, 10)
	dial := c.Connection.AmqpConfig.Dial
	c.Connection.AmqpConfig.Dial = func(network, address string) (net.Conn, error) {
		wait()
		conn, err := dial(network, address)
		all <- dialed{conn, err}
		return conn, err
	}
	return all
}

type refusing struct{}

var errRefused = errors.New("refused")

func (refusing) BuildTopology(*amqp091.Channel, wmamqp.BuildTopologyParams, wmamqp.Config, watermill.LoggerAdapter) error {
	return errRefused
}

func (refusing) ExchangeDeclare(*amqp091.Channel, string, wmamqp.Config) error { return errRefused }

// TestFailedSubscribeLeavesNoConnection: what Subscribe has opened is closed if it fails.
func TestFailedSubscribeLeavesNoConnection(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	config := parse(t, testenv.RabbitMQ(t, rabbitmq.Newest))
	var all <-chan dialed
	config.Watermill = func(c *wmamqp.Config) {
		c.TopologyBuilder = refusing{}
		all = dials(c, func() {})
	}
	s, err := newBroker(t, config).Subscriber(brokers.SubscriberConfig{Group: "group"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Subscribe(t.Context(), newTopic()); !errors.Is(err, errRefused) {
		t.Errorf("Subscribe returned %v", err)
	}
	if err := (<-all).conn.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}
}

// TestCloseWhileConnectingAgain: a connection that comes after Close is left to nobody.
func TestCloseWhileConnectingAgain(t *testing.T) {
	config := parse(t, testenv.RabbitMQ(t, rabbitmq.Newest))
	var (
		all         <-chan dialed
		lost        atomic.Bool
		again, gone = make(chan struct{}), make(chan struct{})
	)
	config.Watermill = func(c *wmamqp.Config) {
		all = dials(c, func() {
			if lost.Load() {
				again <- struct{}{}
				<-gone
			}
		})
	}
	s, err := newBroker(t, config).Subscriber(brokers.SubscriberConfig{Group: "group"})
	if err != nil {
		t.Fatal(err)
	}
	topic := newTopic()
	messages, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, newPublisher(t, newBroker(t, parse(t, testenv.RabbitMQ(t, rabbitmq.Newest)))), topic, newMessage("1"))
	(<-messages).Ack() // so it is consuming: the library does not bear a connection that is lost before
	lost.Store(true)
	_ = (<-all).conn.Close()
	<-again
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	close(gone)
	if d := <-all; !errors.Is(d.err, brokers.ErrClosed) {
		t.Errorf("a subscriber that is closed has connected: %v", d.err)
	}
}
