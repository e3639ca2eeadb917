package memory_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

func numbers(from, to int) []string {
	var ids []string
	for i := from; i <= to; i++ {
		ids = append(ids, strconv.Itoa(i))
	}
	return ids
}

func expectFull(t *testing.T, broker *memory.Broker, topic string) {
	t.Helper()
	err := newPublisher(t, broker).Publish(topic, message.NewMessage("too many", nil))
	if !errors.Is(err, brokers.ErrFull) {
		t.Fatalf("Publish to a full topic returned %v, want ErrFull", err)
	}
}

func TestFullTopicFails(t *testing.T) {
	broker := newBroker(t, memory.Config{Capacity: 3, FailWhenFull: true})
	publish(t, broker, "topic", numbers(1, 3)...)
	expectFull(t, broker, "topic")
	publish(t, broker, "other topic", numbers(1, 3)...)

	// A batch is stored up to the message that is refused.
	err := newPublisher(t, broker).Publish("third topic",
		message.NewMessage("1", nil), message.NewMessage("2", nil), message.NewMessage("3", nil), message.NewMessage("4", nil))
	if !errors.Is(err, brokers.ErrFull) {
		t.Fatalf("Publish of a batch larger than the topic returned %v, want ErrFull", err)
	}
	_, messages := subscribe(t, broker, "third topic", brokers.SubscriberConfig{})
	receiveAndAck(t, messages, numbers(1, 3)...)
}

// TestSlowestGroupSetsThePace: a place is free only when every group has acked.
func TestSlowestGroupSetsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{Capacity: 3, FailWhenFull: true})
		_, fast := subscribe(t, broker, "topic", brokers.SubscriberConfig{Group: "fast"})
		_, slow := subscribe(t, broker, "topic", brokers.SubscriberConfig{Group: "slow"})
		publish(t, broker, "topic", numbers(1, 3)...)
		receiveAndAck(t, fast, numbers(1, 3)...)
		first := receive(t, slow, "1") // unsettled
		synctest.Wait()
		expectFull(t, broker, "topic")
		first.Ack()
		synctest.Wait()
		publish(t, broker, "topic", "4")
		expectFull(t, broker, "topic")
		_ = broker.Close()
	})
}

// TestHeldUpMessageBlocksNoOthers: the oldest message keeps its place, not the ones
// behind it.
func TestHeldUpMessageBlocksNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{Capacity: 3, FailWhenFull: true})
		_, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{InFlight: 2})
		publish(t, broker, "topic", "1")
		held := receive(t, messages, "1")
		for i := 2; i < 50; i++ {
			publish(t, broker, "topic", strconv.Itoa(i))
			receiveAndAck(t, messages, strconv.Itoa(i))
			synctest.Wait()
		}
		held.Ack()
		_ = broker.Close()
	})
}

func TestFullTopicWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{Capacity: 2})
		_, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		published := make(chan int, 10)
		p := newPublisher(t, broker)
		go func() {
			for i := range 5 {
				if err := p.Publish("topic", message.NewMessage(strconv.Itoa(i+1), nil)); err != nil {
					t.Error(err)
				}
				published <- i + 1
			}
		}()
		synctest.Wait()
		if len(published) != 2 {
			t.Fatalf("%d messages are published to a topic of capacity 2", len(published))
		}
		for i := range 5 {
			receiveAndAck(t, messages, strconv.Itoa(i+1))
			synctest.Wait()
			if want := min(i+3, 5); len(published) != want {
				t.Fatalf("after %d acks %d messages are published, want %d", i+1, len(published), want)
			}
		}
		_ = broker.Close()
	})
}

func TestWaitingPublishEnds(t *testing.T) {
	errStop := errors.New("enough")
	for name, test := range map[string]struct {
		end  func(broker *memory.Broker, p message.Publisher, cancel context.CancelCauseFunc)
		want []error
	}{
		"with its context": {
			func(_ *memory.Broker, _ message.Publisher, cancel context.CancelCauseFunc) { cancel(errStop) },
			[]error{brokers.ErrFull, errStop},
		},
		"with its publisher": {
			func(_ *memory.Broker, p message.Publisher, _ context.CancelCauseFunc) { _ = p.Close() },
			[]error{brokers.ErrClosed},
		},
		"with the broker": {
			func(broker *memory.Broker, _ message.Publisher, _ context.CancelCauseFunc) { _ = broker.Close() },
			[]error{brokers.ErrClosed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := newBroker(t, memory.Config{Capacity: 1})
				publish(t, broker, "topic", "1")
				p := newPublisher(t, broker)
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				result := make(chan error, 1)
				go func() {
					result <- p.Publish("topic", message.NewMessageWithContext(ctx, "2", nil))
				}()
				synctest.Wait()
				select {
				case err := <-result:
					t.Fatalf("Publish to a full topic returned %v", err)
				default:
				}
				test.end(broker, p, cancel)
				err := <-result
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("Publish returned %v, want one that wraps %q", err, want)
					}
				}
				_ = broker.Close()
			})
		})
	}
}

// TestContextBoundsOnlyTheWaiting: messages made in a handler that is being shut
// down are published if there is room.
func TestContextBoundsOnlyTheWaiting(t *testing.T) {
	broker := newBroker(t, memory.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := newPublisher(t, broker).Publish("topic", message.NewMessageWithContext(ctx, "1", nil)); err != nil {
		t.Error(err)
	}
}

// TestLateGroupGetsWhatIsKept: messages that all groups have settled are kept while
// there is room, those settled longest ago go first.
func TestLateGroupGetsWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{Capacity: 5, FailWhenFull: true})
		_, early := subscribe(t, broker, "topic", brokers.SubscriberConfig{Group: "early"})
		publish(t, broker, "topic", numbers(1, 5)...)
		receiveAndAck(t, early, numbers(1, 5)...)
		synctest.Wait()
		publish(t, broker, "topic", numbers(6, 7)...) // in the places of 1 and 2

		_, late := subscribe(t, broker, "topic", brokers.SubscriberConfig{Group: "late"})
		expectFull(t, broker, "topic") // what is kept is now unsettled
		receiveAndAck(t, late, numbers(3, 7)...)
		receiveAndAck(t, early, numbers(6, 7)...)
		synctest.Wait()
		publish(t, broker, "topic", numbers(8, 12)...)
		expectFull(t, broker, "topic")
		_ = broker.Close()
	})
}

func TestSubscribeInitializeReservesMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{Capacity: 2, FailWhenFull: true})
		s := newSubscriber(t, broker, brokers.SubscriberConfig{Group: "late"})
		if err := s.SubscribeInitialize("topic"); err != nil {
			t.Fatal(err)
		}
		_, early := subscribe(t, broker, "topic", brokers.SubscriberConfig{Group: "early"})
		publish(t, broker, "topic", "1", "2")
		receiveAndAck(t, early, "1", "2")
		synctest.Wait()
		expectFull(t, broker, "topic")
		messages, err := s.Subscribe(context.Background(), "topic")
		if err != nil {
			t.Fatal(err)
		}
		receiveAndAck(t, messages, "1", "2")
		_ = s.Close()
		if err := s.SubscribeInitialize("topic"); !errors.Is(err, brokers.ErrClosed) {
			t.Errorf("SubscribeInitialize after Close returned %v", err)
		}
		_ = broker.Close()
	})
}

// TestDelayedAndDeadKeepTheirPlaces: nothing leaves the topic unsettled.
func TestDelayedAndDeadKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{Capacity: 2, FailWhenFull: true, DeliveryLimit: 1})
		_, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		publish(t, broker, "topic", "delayed", "dead")
		delayed := receive(t, messages, "delayed")
		brokers.SetGiveBack(delayed, brokers.GiveBack{After: time.Hour})
		delayed.Nack()
		fail(t, receive(t, messages, "dead"))
		synctest.Wait()
		expectFull(t, broker, "topic")
		if n := broker.DropDeadLetters("topic", "group"); n != 1 {
			t.Fatalf("%d dead letters were dropped, want 1", n)
		}
		publish(t, broker, "topic", "next")
		expectFull(t, broker, "topic")
		receiveAndAck(t, messages, "next")
		synctest.Wait()
		publish(t, broker, "topic", "last")
		_ = broker.Close()
	})
}
