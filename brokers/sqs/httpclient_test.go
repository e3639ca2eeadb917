package sqs_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// busy is an HTTP client on a machine that is slow to return from writing a receive: it
// returns when the SDK is already reading the answer.
type busy struct {
	http.Client

	reading chan struct{} // a token when the SDK begins to read an answer
	once    sync.Once
	closed  chan struct{} // closed with the first connection that is
}

func newBusy() *busy {
	c := &busy{reading: make(chan struct{}, 1), closed: make(chan struct{})}
	c.Transport = &http.Transport{MaxIdleConnsPerHost: 1, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &busyConn{Conn: conn, client: c}, err
	}}
	return c
}

func isReceive(r *http.Request) bool {
	return strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".ReceiveMessage")
}

func (c *busy) Do(r *http.Request) (*http.Response, error) {
	response, err := c.Client.Do(r)
	if err == nil && isReceive(r) {
		response.Body = &busyBody{ReadCloser: response.Body, client: c}
	}
	return response, err
}

// busyBody lets the write return before it is read.
type busyBody struct {
	io.ReadCloser

	client *busy
	begun  bool
}

func (b *busyBody) Read(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.client.reading <- struct{}{}
		select {
		case <-b.client.closed:
		case <-time.After(200 * time.Millisecond): // nobody closes it
		}
	}
	return b.ReadCloser.Read(p)
}

type busyConn struct {
	net.Conn

	client  *busy
	receive bool // the request that is being written
}

func (c *busyConn) Write(p []byte) (int, error) {
	if head, _, ok := strings.Cut(string(p), "\r\n\r\n"); ok {
		c.receive = strings.Contains(strings.ToLower(head), ".receivemessage")
	}
	n, err := c.Conn.Write(p)
	if err == nil && c.receive && strings.HasSuffix(string(p), "}") {
		select {
		case <-c.client.reading:
		case <-time.After(within): // there is no answer
		}
	}
	return n, err
}

func (c *busyConn) Close() error {
	c.client.once.Do(func() { close(c.client.closed) })
	return c.Conn.Close()
}

// TestAnswersAreReadOnABusyMachine, though the SDK closes the body of a request before
// net/http has finished with it. What a receive has brought that fails then is hidden from
// everybody.
func TestAnswersAreReadOnABusyMachine(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	sent := newMessages(3)
	for _, msg := range sent {
		msg.Payload = message.Payload(strings.Repeat("x", 20<<10)) // the answer comes in pieces
	}
	publish(t, newBroker(t, s, sqs.Config{}), topic, sent...)

	aws, client := s.Config(t), newBusy()
	aws.HTTPClient = client
	b := newBroker(t, s, sqs.Config{AWS: &aws})
	t.Cleanup(client.CloseIdleConnections)
	var log logs
	defer func() {
		if log.count("Receiving fails") > 0 {
			t.Error("a receive fails")
			log.show(t)
		}
	}()
	messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 10, Logger: &log}), topic)
	for range sent {
		msg, d := receive(t, messages)
		if d.Count != 1 {
			t.Errorf("count %d", d.Count)
		}
		msg.Ack()
	}
}
