package amqp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"
)

// session is one channel with one consumer, while both last.
type session struct {
	*subscription

	conn       *connection
	channel    *amqp091.Channel
	deliveries <-chan amqp091.Delivery

	kept    context.Context // its cause says why settlements no longer count
	lose    context.CancelCauseFunc
	patient context.Context // for pauses before a give-back
	hurry   context.CancelFunc
	running sync.WaitGroup // unsettled deliveries
	acks    acks
	unbegun []*amqp091.Delivery
}

const consumerTag = "millpond"

var errCancelled = errors.New("amqp: the server has cancelled the consumer: the queue was deleted, or a message was unsettled for longer than consumer_timeout")

func newSession(sub *subscription, conn *connection) (*session, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	s := &session{subscription: sub, conn: conn, channel: channel}
	if err := channel.Qos(sub.subscriber.config.InFlight, 0, false); err != nil {
		return nil, err
	}
	ended := channel.NotifyClose(make(chan *amqp091.Error, 1))
	cancelled := channel.NotifyCancel(make(chan string, 1))
	s.deliveries, err = channel.Consume(sub.queue, consumerTag, false, false, false, false, nil)
	if err != nil {
		return nil, err
	}
	s.kept, s.lose = context.WithCancelCause(context.Background())
	s.patient, s.hurry = context.WithCancel(s.kept)
	go s.watch(ended, cancelled)
	return s, nil
}

// watch notes when the broker has taken back its deliveries.
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

// consume hands messages out until the intake ends. After an error the session cannot go on.
func (s *session) consume() error {
	for {
		select {
		case d, ok := <-s.deliveries:
			if !ok {
				<-s.kept.Done()
				return context.Cause(s.kept)
			}
			s.handOut(&d)
		case <-s.kept.Done():
			return context.Cause(s.kept)
		case <-s.Context().Done():
			return nil
		}
	}
}

// drain ends the consumer, gives back messages that nobody has received, and waits until the others
// are settled or abandoned.
func (s *session) drain() {
	s.soon(func() {
		defer s.hurry()
		// Cancel comes first: otherwise given-back messages would be redelivered at once.
		if s.channel.Cancel(consumerTag, false) != nil {
			return
		}
		for d := range s.deliveries { // messages that the client has already read
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
	select {
	case <-settled:
	case <-s.Abandoned(): // a running give-back may take long
	}
}

// leave ends the session. Unsettled messages return to the queue.
func (s *session) leave() {
	s.lose(errLeft)
	s.soon(func() { _ = s.channel.Close() }) // Close waits until the server has seen the last ack
}

// soon runs a call to the server, and ends the connection if the server does not answer.
func (s *session) soon(ask func()) {
	late := time.AfterFunc(leaveTimeout, s.conn.end)
	defer late.Stop()
	ask()
}

// leaveTimeout bounds the goodbye to a server that may be down.
const leaveTimeout = 5 * time.Second

var errLeft = errors.New("amqp: the subscription has ended")
