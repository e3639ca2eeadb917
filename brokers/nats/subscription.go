package nats

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/internal/handout"
)

const (
	longestRedeliveryDelay = 30 * time.Second
	redeliveryGrowth       = 30 // of the first delay, at most
	pullExpiry             = 30 * time.Second
	pauseAfterError        = time.Second
)

// source is where a subscription gets its messages.
type source struct {
	topic, stream string
	consumer      jetstream.Consumer
}

// subscription is one call of Subscribe. Each of its slots pulls one message at a time, so
// that the server has given out none that is not in hand.
type subscription struct {
	subscriber *Subscriber
	source     source
	logger     watermill.LoggerAdapter
	desk       *handout.Desk
	doubt      doubt
	trouble    atomic.Bool // the log has it
	done       chan struct{}
}

func newSubscription(ctx context.Context, s *Subscriber, from source) *subscription {
	return &subscription{
		subscriber: s,
		source:     from,
		logger:     s.config.Logger.With(watermill.LogFields{"topic": from.topic, "group": s.config.Group, "stream": from.stream}),
		desk:       handout.New(ctx),
		doubt:      doubt{connection: s.broker.connections()},
		done:       make(chan struct{}),
	}
}

// Close ends the intake and waits until all is settled or over. It returns nil.
func (s *subscription) Close() error {
	s.desk.Stop()
	<-s.done
	return nil
}

// run delivers until the intake ends, then drains.
func (s *subscription) run() {
	defer close(s.done)
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		var slots sync.WaitGroup
		for range s.subscriber.config.InFlight {
			slots.Go(s.pull)
		}
		slots.Wait()
	}()
	<-s.desk.Context().Done()
	if !s.desk.Drain(idle, s.subscriber.config.DrainTimeout) {
		s.logger.Info("Draining has ended with messages unsettled; they come again after the ack wait", nil)
	}
	_ = s.subscriber.broker.conn.FlushTimeout(flushTimeout) // acks; what is lost of them comes again
	s.desk.Close()
}

// pull is one slot: it takes a message, delivers it, settles it, and takes the next one.
func (s *subscription) pull() {
	ctx := s.desk.Context()
	for ctx.Err() == nil {
		messages, err := s.source.consumer.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullExpiry))
		if err == nil {
			stop := context.AfterFunc(ctx, messages.Drain)
			err = s.deliverAll(ctx, messages)
			stop()
			messages.Stop()
		}
		if ctx.Err() == nil {
			s.recover(ctx, err)
		}
	}
}

// deliverAll returns when no more messages come. Next must not be called again once the
// intake has ended: it would wait for ever. A call under way returns what was on its way,
// and that is given back.
func (s *subscription) deliverAll(ctx context.Context, messages jetstream.MessagesContext) error {
	for ctx.Err() == nil {
		msg, err := messages.Next()
		if err != nil {
			return err
		}
		s.trouble.Store(false)
		s.deliver(msg)
	}
	return nil
}

// recover waits after an error, and finds the consumer again, which somebody may have
// deleted.
func (s *subscription) recover(ctx context.Context, cause error) {
	if !s.trouble.Swap(true) {
		s.logger.Error("Messages cannot be pulled; it is tried again", cause, nil)
	}
	sleep(ctx, pauseAfterError)
	if !errors.Is(cause, jetstream.ErrConsumerDeleted) && !errors.Is(cause, jetstream.ErrConsumerNotFound) {
		return
	}
	asking, cancel := context.WithTimeout(ctx, s.subscriber.broker.config.ConnectTimeout)
	defer cancel()
	_, err := s.subscriber.broker.consumer(asking, s.source.stream, s.source.topic, s.subscriber.config.Group)
	if err != nil {
		s.logger.Debug("The consumer cannot be made again", watermill.LogFields{"error": err.Error()})
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// doubt says which messages may have been delivered before, although their count says
// otherwise: after a new connection the server may be one that has forgotten deliveries.
type doubt struct {
	mu         sync.Mutex
	connection uint64 // the one that until was asked on
	until      uint64 // the stream's last sequence then
}

// doubtful reports whether a message may have been in flight over an earlier connection.
func (s *subscription) doubtful(sequence uint64) bool {
	connection := s.subscriber.broker.connections()
	s.doubt.mu.Lock()
	defer s.doubt.mu.Unlock()
	if connection != s.doubt.connection {
		ctx, cancel := context.WithTimeout(s.desk.Context(), s.subscriber.broker.config.ConnectTimeout)
		defer cancel()
		stream, err := s.subscriber.broker.js.Stream(ctx, s.source.stream)
		if err != nil {
			return true
		}
		s.doubt.connection, s.doubt.until = connection, stream.CachedInfo().State.LastSeq
	}
	return sequence <= s.doubt.until
}
