package official

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/semaphore"
)

// leaveTimeout bounds the farewell to the broker: the last commit, and the leaving of the
// group. A broker that hangs is left without.
const leaveTimeout = 5 * time.Second

// subscription is one Subscribe call.
type subscription struct {
	subscriber *Subscriber
	topic      string
	logger     watermill.LoggerAdapter
	wires      *wires

	intake    context.Context // ends with the caller's context, or by Close
	cancel    context.CancelFunc
	slots     *semaphore.Weighted // in flight
	out       chan *message.Message
	abandoned chan struct{} // closed when the drain is over

	working sync.WaitGroup // the reader and everything it has begun

	mu     sync.Mutex
	claims map[int32]*claim // by partition
}

func newSubscription(ctx context.Context, s *Subscriber, topic string) *subscription {
	sub := &subscription{
		subscriber: s,
		topic:      topic,
		logger:     s.config.Logger.With(watermill.LogFields{"topic": topic, "group": s.config.Group}),
		slots:      semaphore.NewWeighted(int64(s.config.InFlight)),
		out:        make(chan *message.Message),
		abandoned:  make(chan struct{}),
		claims:     make(map[int32]*claim),
	}
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(s.closing, cancel)
	sub.intake = ctx
	sub.cancel = func() { unlink(); cancel() }
	return sub
}

// run delivers until the intake ends, then drains.
func (s *subscription) run(inner *wmkafka.Subscriber, in <-chan *message.Message) {
	s.working.Go(func() {
		// Always read: nothing else makes watermill-kafka let go of a record in time.
		for msg := range in {
			d := s.newDelivery(msg)
			s.working.Go(d.run)
		}
	})
	<-s.intake.Done()
	s.drain()
	close(s.abandoned)
	defer time.AfterFunc(leaveTimeout, s.wires.cut).Stop()
	_ = inner.Close() // never fails; commits what is marked
	s.working.Wait()
	close(s.out)
	s.cancel()
}

// drain waits until every slot is free, and then takes them all.
func (s *subscription) drain() {
	timeout := s.subscriber.config.DrainTimeout
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if s.slots.Acquire(ctx, int64(s.subscriber.config.InFlight)) != nil {
		s.logger.Info("Unsettled messages are delivered again: they were not settled in time", watermill.LogFields{
			"drain_timeout": timeout.String(),
		})
	}
}

func (s *subscription) begin(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[c.partition] = c
}

func (s *subscription) end(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[c.partition] == c {
		delete(s.claims, c.partition)
	}
}

// claim returns the claim of a partition, nil if there is none any more.
func (s *subscription) claim(partition int32) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[partition]
}
