package amqp

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/brokers"
)

// link is a connection that is restored when it is lost. It is safe for concurrent use.
type link struct {
	broker  *Broker
	purpose string

	turn    chan struct{} // full while a caller checks or dials
	current *connection   // guarded by turn, like closed
	closed  bool
}

func newLink(b *Broker, purpose string) *link {
	return &link{broker: b, purpose: purpose, turn: make(chan struct{}, 1)}
}

// connect returns the connection, or makes one. It tries once. Errors wrap brokers.ErrClosed or
// brokers.ErrUnavailable.
func (l *link) connect(ctx context.Context) (*connection, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("amqp: %w: %w", brokers.ErrUnavailable, context.Cause(ctx))
	}
	defer func() { <-l.turn }()
	if l.closed {
		return nil, fmt.Errorf("amqp: %w", brokers.ErrClosed)
	}
	if l.current != nil {
		select {
		case <-l.current.gone:
		default:
			return l.current, nil
		}
	}
	conn, err := l.broker.dial(ctx, l)
	if err != nil {
		return nil, err
	}
	if l.current != nil {
		conn.again = time.Now()
	}
	l.current = conn
	return conn, nil
}

// close ends the connection. Later calls of connect fail.
func (l *link) close() {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.closed = true
	if l.current != nil {
		l.current.end()
	}
}
