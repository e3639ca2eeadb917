package nats

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/outage"
	"github.com/millpond-go/millpond/internal/pause"
)

const (
	longestRedeliveryDelay = 30 * time.Second
	redeliveryGrowth       = 30 // the largest delay, in multiples of the first
	pullExpiry             = 30 * time.Second
	heartbeat              = 5 * time.Second // from the server, to an idle pull; two missed ones are an error
	lateWait               = time.Second     // for what the connection still has to read then
)

// source is where a subscription's messages come from.
type source struct {
	topic, stream string
	consumer      jetstream.Consumer
}

// ackWait returns the consumer's ack wait, whatever is configured here.
func (s source) ackWait() time.Duration { return s.consumer.CachedInfo().Config.AckWait }

// subscription is one call of Subscribe. Each of its slots pulls one message at a time, so the
// server hands out only messages that are handled at once.
type subscription struct {
	*handout.Desk

	subscriber *Subscriber
	source     source
	doubt      doubt
	trouble    *outage.Outage
}

func newSubscription(ctx context.Context, s *Subscriber, from source) *subscription {
	desk := handout.New(ctx, s.config, watermill.LogFields{"topic": from.topic, "stream": from.stream})
	sub := &subscription{Desk: desk, subscriber: s, source: from, trouble: outage.New(desk.Logger(), "Pulling messages")}
	sub.doubt.connection.Store(s.broker.connections())
	return sub
}

// Run delivers until the intake ends, then drains.
func (s *subscription) Run() {
	defer s.Finish()
	s.Serve(func() {
		var slots sync.WaitGroup
		defer slots.Wait()
		for range s.subscriber.config.InFlight {
			slots.Go(s.pull)
		}
	})
	_ = s.subscriber.broker.conn.FlushTimeout(flushTimeout) // flushes acks; messages whose ack is lost are redelivered
}

// pull is one slot: it takes a message, delivers it, settles it, and takes the next one.
func (s *subscription) pull() {
	ctx := s.Context()
	for ctx.Err() == nil {
		messages, err := s.source.consumer.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(heartbeat))
		if err == nil {
			stop := context.AfterFunc(ctx, messages.Drain)
			err = s.deliverAll(ctx, messages)
			late := lateOne(messages, stop(), err)
			messages.Stop()
			if late != nil {
				s.handOut(late)
			}
		}
		if ctx.Err() == nil {
			s.findAgain(ctx, err)
		}
	}
}

// deliverAll returns when no more messages come. Once the intake has ended, Next must not be called
// again, because it would wait for ever. A call that is running returns a message in transit, which
// is given back.
func (s *subscription) deliverAll(ctx context.Context, messages jetstream.MessagesContext) error {
	for ctx.Err() == nil {
		msg, err := messages.Next()
		if err != nil {
			return err
		}
		s.trouble.Over()
		s.handOut(msg)
	}
	return nil
}

// lateOne returns a message that comes together with the news that heartbeats were missed, as after a
// standstill of the process. It may be the last delivery that the server's limit allows. Otherwise the
// result is nil. After a drain Next must not be called, because it could wait for ever.
func lateOne(messages jetstream.MessagesContext, undrained bool, err error) jetstream.Msg {
	if !undrained || !errors.Is(err, jetstream.ErrNoHeartbeat) {
		return nil
	}
	late, err := messages.Next(jetstream.NextMaxWait(lateWait))
	if err != nil {
		return nil
	}
	return late
}

// findAgain waits after an error, and looks up stream and consumer, which may have been deleted, or
// lost by a server without its disk. A new consumer's messages may have been delivered before.
func (s *subscription) findAgain(ctx context.Context, cause error) {
	b := s.subscriber.broker
	if !pause.Sleep(ctx, s.trouble.Failed(cause)) {
		return
	}
	asking, cancel := context.WithTimeout(ctx, b.config.ConnectTimeout)
	defer cancel()
	stream, err := b.stream(asking, s.source.topic)
	if err == nil {
		_, err = b.consumer(asking, stream, s.source.topic, s.subscriber.config.Group)
	}
	if err == nil && stream != s.source.stream {
		err = fmt.Errorf("%w: %q is in stream %q now, and was in %q: restart", ErrNoStream, s.source.topic, stream, s.source.stream)
	}
	if err != nil {
		s.trouble.Failed(err)
		return
	}
	s.doubt.connection.Store(unknownConnection)
	s.trouble.Over()
}

// doubt says which messages may have been delivered before, whatever their count says: after a
// reconnect the server may have forgotten deliveries.
type doubt struct {
	asking     sync.Mutex
	connection atomic.Uint64 // the connection for which until is valid
	until      atomic.Uint64 // the stream's last sequence at that time
}

const unknownConnection = math.MaxUint64

// doubtful reports whether a message may have been in flight on an earlier connection, or before
// the consumer was created. While that is unknown, it reports true.
func (s *subscription) doubtful(sequence uint64) bool {
	connection := s.subscriber.broker.connections()
	if connection == s.doubt.connection.Load() {
		return sequence <= s.doubt.until.Load()
	}
	if !s.doubt.asking.TryLock() {
		return true
	}
	defer s.doubt.asking.Unlock()
	ctx, cancel := context.WithTimeout(s.Context(), min(s.subscriber.broker.config.ConnectTimeout, s.source.ackWait()/2))
	defer cancel()
	stream, err := s.subscriber.broker.js.Stream(ctx, s.source.stream)
	if err != nil {
		return true
	}
	s.doubt.until.Store(stream.CachedInfo().State.LastSeq)
	s.doubt.connection.Store(connection)
	return sequence <= s.doubt.until.Load()
}
