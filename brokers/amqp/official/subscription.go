package official

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
)

// leaveTimeout bounds the farewell to the broker. One that hangs is left without.
const leaveTimeout = 3 * time.Second

// subscription is one Subscribe call.
type subscription struct {
	subscriber *Subscriber
	topic      string
	logger     watermill.LoggerAdapter
	wires      *wires

	values context.Context // the caller's, without its end
	intake context.Context // ends with the caller's context, or by Close
	cancel context.CancelFunc
	life   context.Context // watermill-amqp's: its end would take away what handlers have in hand
	die    context.CancelFunc
	out    chan *message.Message

	mu   sync.Mutex
	last arrival // written before its message is handed over
}

func newSubscription(ctx context.Context, s *Subscriber, topic string) *subscription {
	sub := &subscription{
		subscriber: s,
		topic:      topic,
		logger:     s.config.Logger.With(watermill.LogFields{"topic": topic, "group": s.config.Group}),
		wires:      s.broker.lay(),
		values:     context.WithoutCancel(ctx),
		out:        make(chan *message.Message),
	}
	intake, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(s.closing, cancel)
	sub.intake = intake
	sub.life, sub.die = context.WithCancel(sub.values)
	sub.cancel = func() { unlink(); cancel(); sub.die() }
	return sub
}

// run delivers one message at a time until the intake ends.
func (s *subscription) run(inner *wmamqp.Subscriber, in <-chan *message.Message) {
	defer close(s.out)
	defer s.end(inner)
	for {
		select {
		case msg, ok := <-in:
			if !ok {
				return
			}
			s.deliver(msg)
		case <-s.intake.Done():
			return
		}
		if s.intake.Err() != nil { // select is fair
			return
		}
	}
}

// end closes watermill-amqp's subscriber, which gives back what is not settled.
func (s *subscription) end(inner *wmamqp.Subscriber) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = inner.Close() // never fails
	}()
	// While it has no connection, it waits for one or for this.
	s.cancel()
	defer time.AfterFunc(leaveTimeout, s.wires.cut).Stop()
	<-closed
	s.wires.cut()
}
