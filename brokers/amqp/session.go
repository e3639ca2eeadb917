package amqp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/rabbitmq/amqp091-go"
)

// session is one channel with one consumer, for as long as both last.
type session struct {
	*subscription

	conn       *connection
	channel    *amqp091.Channel
	deliveries <-chan amqp091.Delivery

	stopping chan struct{} // closed when no more pauses are made
	lost     chan struct{} // closed when settlements no longer count
	losing   sync.Once
	running  sync.WaitGroup // deliveries unsettled
	acks     acks
	unbegun  []*amqp091.Delivery

	mu    sync.Mutex
	cause error // why it was lost
}

const consumerTag = "millpond"

var errCancelled = errors.New("amqp: the server has cancelled the consumer: the queue was deleted, or a message was unsettled for longer than consumer_timeout")

func newSession(sub *subscription, conn *connection) (*session, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	s := &session{
		subscription: sub, conn: conn, channel: channel,
		stopping: make(chan struct{}), lost: make(chan struct{}),
	}
	if err := channel.Qos(sub.subscriber.config.InFlight, 0, false); err != nil {
		return nil, err
	}
	ended := channel.NotifyClose(make(chan *amqp091.Error, 1))
	cancelled := channel.NotifyCancel(make(chan string, 1))
	s.deliveries, err = channel.Consume(sub.queue, consumerTag, false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	go s.watch(ended, cancelled)
	return s, nil
}

// watch notes when the broker has taken back what it had delivered.
func (s *session) watch(ended <-chan *amqp091.Error, cancelled <-chan string) {
	for {
		select {
		case _, ok := <-cancelled:
			if !ok {
				cancelled = nil
				continue
			}
			s.lose(errCancelled)
		case err := <-ended:
			if err == nil {
				err = amqp091.ErrClosed
			}
			s.lose(err)
			return
		}
	}
}

func (s *session) lose(cause error) {
	s.losing.Do(func() {
		s.mu.Lock()
		s.cause = cause
		s.mu.Unlock()
		close(s.lost)
	})
}

// consume hands messages out until ctx ends. An error means that the session cannot go
// on.
func (s *session) consume(ctx context.Context) error {
	for {
		select {
		case d, ok := <-s.deliveries:
			if !ok {
				<-s.lost
				return s.reason()
			}
			s.handOut(ctx, &d)
		case <-s.lost:
			return s.reason()
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *session) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// drain stops the intake, gives back what nobody has received, and waits until the rest is
// settled, at most timeout.
func (s *session) drain(timeout time.Duration) {
	s.soon(func() {
		defer close(s.stopping)
		// Before anything is given back, or it would come straight back.
		if s.channel.Cancel(consumerTag, false) != nil {
			return
		}
		for d := range s.deliveries { // what the client has read already
			s.unbegun = append(s.unbegun, &d)
		}
		for _, d := range s.unbegun {
			_ = d.Nack(false, true)
		}
	})
	settled := make(chan struct{})
	go func() {
		s.running.Wait()
		close(settled)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
		s.logger.Info("Unsettled messages will be delivered again: they were not settled in time", watermill.LogFields{"drain_timeout": timeout.String()})
	}
	s.leave()
}

// leave ends the session. What is unsettled goes back to the queue.
func (s *session) leave() {
	s.lose(errLeft)
	s.soon(func() { _ = s.channel.Close() }) // waits until the server has seen the last ack
}

// soon runs what asks the server, and ends the connection if the server does not answer.
func (s *session) soon(ask func()) {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		ask()
	}()
	select {
	case <-answered:
	case <-time.After(leaveTimeout):
		s.conn.end()
		<-answered
	}
}

// leaveTimeout bounds the farewell to a server that may be away.
const leaveTimeout = 5 * time.Second

var errLeft = errors.New("amqp: the subscription has ended")
