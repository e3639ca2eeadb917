package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

// TestOutputChannelIsClosedAfterDrain: a router closes a handler's publisher when
// the channel is closed, so no handler may be running then.
func TestOutputChannelIsClosedAfterDrain(t *testing.T) {
	for name, stop := range map[string]func(s *memory.Subscriber, cancel context.CancelFunc){
		"Close":            func(s *memory.Subscriber, _ context.CancelFunc) { go s.Close() },
		"end of a context": func(_ *memory.Subscriber, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := newBroker(t, memory.Config{})
				publish(t, broker, "topic", "1", "2")
				s := newSubscriber(t, broker, brokers.SubscriberConfig{DrainTimeout: time.Hour})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				messages, err := s.Subscribe(ctx, "topic")
				if err != nil {
					t.Fatal(err)
				}
				msg := receive(t, messages, "1")
				stop(s, cancel)
				<-msg.Context().Done()
				synctest.Wait()
				select {
				case extra, open := <-messages:
					t.Fatalf("with a handler running the channel gives %v, %t", extra, open)
				default:
				}
				msg.Ack()
				synctest.Wait()
				select {
				case extra, open := <-messages:
					if open {
						t.Errorf("%q came after the end", extra.UUID)
					}
				default:
					t.Error("the channel is open after the last handler is done")
				}
				_ = broker.Close()
			})
		})
	}
}

// TestRouterPublishesOutputsOnClose is what the order is for: the output of a
// handler that runs while the router is closed is published.
func TestRouterPublishesOutputsOnClose(t *testing.T) {
	broker := newBroker(t, memory.Config{})
	publish(t, broker, "in", "1")
	s := newSubscriber(t, broker, brokers.SubscriberConfig{DrainTimeout: within})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: within}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	router.AddHandler("handler", "in", s, "out", newPublisher(t, broker), func(msg *message.Message) ([]*message.Message, error) {
		close(running)
		<-msg.Context().Done()
		// The router has now all the time it needs to close the publisher.
		<-time.After(50 * time.Millisecond)
		return message.Messages{message.NewMessage("output", nil)}, nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-running
	if err := errors.Join(router.Close(), <-ended); err != nil {
		t.Fatal(err)
	}
	_, messages := subscribe(t, broker, "out", brokers.SubscriberConfig{})
	receiveAndAck(t, messages, "output")
}

func TestBrokerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{})
		publish(t, broker, "topic", "1", "2", "3")
		p := newPublisher(t, broker)
		first, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{DrainTimeout: time.Hour})
		msg := receive(t, messages, "1")
		_, others := subscribe(t, broker, "topic", brokers.SubscriberConfig{DrainTimeout: time.Hour})
		nackAfter(receive(t, others, "2"), time.Minute)
		synctest.Wait()

		began := time.Now()
		for range 2 {
			if err := broker.Close(); err != nil {
				t.Error(err)
			}
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("Close waited %s", waited)
		}
		if msg.Context().Err() == nil {
			t.Error("the context of an unsettled message has not ended")
		}
		for _, channel := range []<-chan *message.Message{messages, others} {
			for extra := range channel {
				t.Errorf("%q came after Close", extra.UUID)
			}
		}
		msg.Nack()

		_, subscriberErr := broker.Subscriber(brokers.SubscriberConfig{Group: "group"})
		_, publisherErr := broker.Publisher(brokers.PublisherConfig{})
		_, subscribeErr := first.Subscribe(context.Background(), "topic")
		publishErr := p.Publish("topic", message.NewMessage("4", nil))
		for _, err := range []error{subscriberErr, publisherErr, subscribeErr, publishErr} {
			if !errors.Is(err, brokers.ErrClosed) {
				t.Errorf("after Close the error is %v, want ErrClosed", err)
			}
		}
		if err := errors.Join(first.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		if letters := broker.DeadLetters("topic", "group"); letters != nil {
			t.Errorf("a closed broker has dead letters: %v", letters)
		}
	})
}

// TestReceiverGone: a consumer that stops receiving holds no message.
func TestReceiverGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{})
		publish(t, broker, "topic", "1")
		s, _ := subscribe(t, broker, "topic", brokers.SubscriberConfig{DrainTimeout: time.Hour})
		synctest.Wait() // the message is on offer
		began := time.Now()
		_ = s.Close()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("Close waited %s for a message that nobody has received", waited)
		}
		_, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		msg := receive(t, messages, "1")
		if d := delivery(t, msg); d.Count != 1 || d.Suspect {
			t.Errorf("a message that nobody has received was counted: %+v", d)
		}
		msg.Ack()
		_ = broker.Close()
	})
}

func TestIdentity(t *testing.T) {
	seen := make(map[string]bool)
	for range 2 {
		broker := newBroker(t, memory.Config{KeyMetadata: "key"})
		msg := message.NewMessage("1", nil)
		p := newPublisher(t, broker)
		if err := p.Publish("topic", msg, msg); err != nil { // one UUID, two messages
			t.Fatal(err)
		}
		_, one := subscribe(t, broker, "topic", brokers.SubscriberConfig{Group: "one"})
		_, two := subscribe(t, broker, "topic", brokers.SubscriberConfig{Group: "two"})
		for i, at := range []string{"topic/1", "topic/2"} {
			a, b := receive(t, one, "1"), receive(t, two, "1")
			da, db := delivery(t, a), delivery(t, b)
			a.Ack()
			b.Ack()
			if da.NativeID != db.NativeID || seen[da.NativeID] {
				t.Errorf("message %d has the ids %q and %q in two groups, seen before: %v", i+1, da.NativeID, db.NativeID, seen)
			}
			seen[da.NativeID] = true
			if da.Coordinates != at || da.Key != nil {
				t.Errorf("message %d is at %q with key %q, want %q and none", i+1, da.Coordinates, da.Key, at)
			}
		}
	}
}
