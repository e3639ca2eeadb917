package amqp_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
)

// TestAcksAmongOthers: an ack that is written for several takes nothing along that is held
// or given back, and leaves nothing out.
func TestAcksAmongOthers(t *testing.T) {
	t.Parallel()
	const (
		n        = 600
		inFlight = 32
		mostHeld = 8
	)
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Consume.RetryDelays = []time.Duration{50 * time.Millisecond}
		b := newBroker(t, config)
		topic := newTopic()
		s := subscriber(t, b, brokers.SubscriberConfig{InFlight: inFlight})
		out := subscribe(t, s, topic)
		if err := publisher(t, b).Publish(topic, newMessages(n)...); err != nil {
			t.Fatal(err)
		}

		acked, given, held := map[string]bool{}, map[string]bool{}, map[string]*message.Message{}
		var handlers sync.WaitGroup
		take := func(again map[string]*message.Message) {
			t.Helper()
			msg, d := receive(t, out)
			before := given[msg.UUID] || again[msg.UUID] != nil
			if acked[msg.UUID] || before != d.Suspect {
				t.Fatalf("acked %t, given back %t: %+v", acked[msg.UUID], before, d)
			}
			switch dice := rand.IntN(20); {
			case len(acked) > n/2 && len(held) < mostHeld && dice < 2 && again == nil: // till then acks are for several
				held[msg.UUID] = msg
				return
			case !before && dice < 8:
				given[msg.UUID] = true
				brokers.SetGiveBack(msg, []brokers.GiveBack{{}, {Failed: true}, {After: 60 * time.Millisecond}}[dice%3])
				handlers.Go(func() { msg.Nack() })
			default:
				acked[msg.UUID] = true
				handlers.Go(func() {
					for range dice { // they end in another order
						runtime.Gosched()
					}
					msg.Ack()
				})
			}
		}
		for len(acked)+len(held) < n {
			take(nil)
		}
		for _, msg := range held {
			msg.Nack()
		}
		for len(acked) < n {
			take(held)
		}
		handlers.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, ok, err := channel(t, address).Get(topic+"_group", true); ok || err != nil {
			t.Errorf("the queue still has %q (%v)", left.Body, err)
		}
	})
}

// TestAcksAtOnce: whoever settles when, the server is told of each delivery once, and of
// none before it was settled.
func TestAcksAtOnce(t *testing.T) {
	t.Parallel()
	const (
		n        = 10_000
		inFlight = 64
	)
	var acks amqp.Acks
	l := &ledger{acked: make(map[uint64]bool)}
	slots := make(chan struct{}, inFlight)
	var handlers sync.WaitGroup
	for tag := range uint64(n) {
		slots <- struct{}{}
		l.deliver(tag + 1)
		d := acks.Deliver(&amqp091.Delivery{Acknowledger: l, DeliveryTag: tag + 1})
		dice := rand.IntN(20)
		handlers.Go(func() {
			defer func() { <-slots }()
			for range dice {
				runtime.Gosched()
			}
			if dice == 0 {
				d.Reject()
				return
			}
			l.allow(tag + 1)
			d.Ack()
		})
	}
	handlers.Wait()
	if len(l.acked) > 0 || len(l.wrong) > 0 {
		t.Errorf("%d deliveries are unsettled; the server would have refused: %.10q", len(l.acked), l.wrong)
	}
	if l.told >= n {
		t.Errorf("%d frames for %d messages: no ack was for several", l.told, n)
	}
	t.Logf("%d frames for %d messages", l.told, n)
}

// ledger keeps the account of one channel as RabbitMQ does: an ack must name what is
// unsettled.
type ledger struct {
	mu    sync.Mutex
	acked map[uint64]bool // by the handler; what is unsettled
	wrong []string
	told  int
}

func (l *ledger) deliver(tag uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[tag] = false
}

func (l *ledger) allow(tag uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[tag] = true
}

// Ack implements amqp091.Acknowledger.
func (l *ledger) Ack(tag uint64, multiple bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told++
	if _, ok := l.acked[tag]; !ok {
		l.wrong = append(l.wrong, fmt.Sprintf("unknown delivery tag %d", tag))
	}
	for unsettled, acked := range l.acked {
		if unsettled != tag && (!multiple || unsettled > tag) {
			continue
		}
		if !acked {
			l.wrong = append(l.wrong, fmt.Sprintf("%d by an ack of %d", unsettled, tag))
		}
		delete(l.acked, unsettled)
	}
	return nil
}

// Nack implements amqp091.Acknowledger.
func (l *ledger) Nack(tag uint64, _, requeue bool) error { return l.Reject(tag, requeue) }

// Reject implements amqp091.Acknowledger.
func (l *ledger) Reject(tag uint64, _ bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told++
	if _, ok := l.acked[tag]; !ok {
		l.wrong = append(l.wrong, fmt.Sprintf("unknown delivery tag %d", tag))
	}
	delete(l.acked, tag)
	return nil
}
