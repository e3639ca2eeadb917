package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

func nackAfter(msg *message.Message, after time.Duration) {
	brokers.SetGiveBack(msg, brokers.GiveBack{After: after})
	msg.Nack()
}

func TestRedeliveryDelay(t *testing.T) {
	for name, test := range map[string]struct {
		config time.Duration
		after  time.Duration
		want   time.Duration
	}{
		"default":              {0, 0, 10 * time.Millisecond},
		"configured":           {time.Minute, 0, time.Minute},
		"none":                 {-1, 0, 0},
		"of the give-back":     {time.Minute, time.Second, time.Second},
		"negative is not said": {time.Minute, -time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := newBroker(t, memory.Config{RedeliveryDelay: test.config})
				_, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
				publish(t, broker, "topic", "1")
				msg := receive(t, messages, "1")
				began := time.Now()
				nackAfter(msg, test.after)
				msg = <-messages
				if waited := time.Since(began); waited != test.want {
					t.Errorf("the message came again after %s, want %s", waited, test.want)
				}
				msg.Ack()
				_ = broker.Close()
			})
		})
	}
}

// TestRedeliveryComesFirst: what was nacked is older than what waits, and is
// delivered before it, oldest first.
func TestRedeliveryComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{})
		_, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		publish(t, broker, "topic", numbers(1, 6)...)
		nackAfter(receive(t, messages, "1"), 3*time.Second)
		nackAfter(receive(t, messages, "2"), 2*time.Second)
		third := receive(t, messages, "3") // holds the only slot until both are due
		<-time.After(5 * time.Second)
		third.Ack()
		receiveAndAck(t, messages, "1", "2", "4", "5", "6")
		_ = broker.Close()
	})
}

// TestOthersPassDelayed: a delayed message does not stop the group.
func TestOthersPassDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{})
		_, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		publish(t, broker, "topic", "1", "2", "3")
		began := time.Now()
		nackAfter(receive(t, messages, "1"), time.Hour)
		receiveAndAck(t, messages, "2", "3")
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the messages behind a delayed one came after %s", waited)
		}
		msg := <-messages
		if waited := time.Since(began); msg.UUID != "1" || waited != time.Hour {
			t.Errorf("message %q came after %s, want 1 after 1h", msg.UUID, waited)
		}
		msg.Ack()
		_ = broker.Close()
	})
}

func TestDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{DeliveryLimit: 2})
		_, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		_, others := subscribe(t, broker, "topic", brokers.SubscriberConfig{Group: "other"})
		sent := message.NewMessage("1", []byte("payload"))
		sent.Metadata.Set("name", "value")
		if err := newPublisher(t, broker).Publish("topic", sent); err != nil {
			t.Fatal(err)
		}
		receiveAndAck(t, others, "1")

		fail(t, receive(t, messages, "1"))
		receive(t, messages, "1").Nack() // "not now" is free
		last := receive(t, messages, "1")
		last.Metadata.Set("name", "edited")
		fail(t, last)
		synctest.Wait()

		letters := broker.DeadLetters("topic", "group")
		if len(letters) != 1 {
			t.Fatalf("there are %d dead letters, want 1", len(letters))
		}
		letter := letters[0]
		if !letter.Message.Equals(sent) {
			t.Errorf("the dead letter is %+v", letter.Message)
		}
		if got, want := letter.Delivery, delivery(t, last); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the dead letter's delivery is %+v, want that of the last one %+v", got, want)
		}
		if !letter.At.Equal(time.Now()) {
			t.Errorf("the dead letter died at %s, now is %s", letter.At, time.Now())
		}
		for _, place := range [][2]string{{"topic", "other"}, {"topic", "unknown"}, {"unknown", "group"}} {
			if letters := broker.DeadLetters(place[0], place[1]); letters != nil {
				t.Errorf("%q has dead letters: %v", place, letters)
			}
			if n := broker.DropDeadLetters(place[0], place[1]); n != 0 {
				t.Errorf("%d dead letters of %q were dropped", n, place)
			}
		}
		if n := broker.DropDeadLetters("topic", "group"); n != 1 {
			t.Errorf("%d dead letters were dropped, want 1", n)
		}
		if letters := broker.DeadLetters("topic", "group"); letters != nil {
			t.Errorf("there are dead letters after they were dropped: %v", letters)
		}
		_ = broker.Close()
	})
}

// TestLostDeliveriesCount: a message that kills its consumers does not do so for
// ever.
func TestLostDeliveriesCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{DeliveryLimit: 3})
		publish(t, broker, "topic", "1", "2")

		dying, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		receive(t, messages, "1")
		dying.Abandon()

		stuck, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{DrainTimeout: time.Second})
		if d := delivery(t, receive(t, messages, "1")); d.Count != 2 || !d.Suspect {
			t.Errorf("after one death the delivery is %+v", d)
		}
		began := time.Now()
		_ = stuck.Close()
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("Close waited %s for a message that is never settled, DrainTimeout is 1s", waited)
		}

		ended, cancel := context.WithCancel(context.Background())
		messages, err := newSubscriber(t, broker, brokers.SubscriberConfig{DrainTimeout: time.Second}).Subscribe(ended, "topic")
		if err != nil {
			t.Fatal(err)
		}
		receive(t, messages, "1")
		began = time.Now()
		cancel()
		for range messages {
			t.Error("a message came after the Subscribe context had ended")
		}
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the output channel was closed after %s, DrainTimeout is 1s", waited)
		}

		if letters := broker.DeadLetters("topic", "group"); len(letters) != 1 || letters[0].Message.UUID != "1" {
			t.Errorf("after 3 lost deliveries of 3 the dead letters are %v", letters)
		}
		_, messages = subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		msg := receive(t, messages, "2")
		if d := delivery(t, msg); d.Count != 1 || d.Suspect {
			t.Errorf("a message that only waited was counted: %+v", d)
		}
		msg.Ack()
		_ = broker.Close()
	})
}

// TestAbandonHearsEarlierAcks: an ack before the death counts, one after it does not.
func TestAbandonHearsEarlierAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{})
		for round := range 100 {
			publish(t, broker, "topic", "acked", "unsettled")
			s, messages := subscribe(t, broker, "topic", brokers.SubscriberConfig{InFlight: 2})
			receive(t, messages, "acked").Ack()
			late := receive(t, messages, "unsettled")
			s.Abandon()
			late.Ack()
			s, messages = subscribe(t, broker, "topic", brokers.SubscriberConfig{InFlight: 2})
			msg := receive(t, messages, "unsettled")
			synctest.Wait()
			select {
			case extra := <-messages:
				t.Fatalf("round %d: %q came, too", round, extra.UUID)
			default:
			}
			msg.Ack()
			_ = s.Close()
		}
		_ = broker.Close()
	})
}

// TestBusyConsumerKeepsNothingFromOthers: whoever has a free slot gets the message.
func TestBusyConsumerKeepsNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t, memory.Config{})
		publish(t, broker, "topic", "held")
		_, busy := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		held := receive(t, busy, "held")
		_, idle := subscribe(t, broker, "topic", brokers.SubscriberConfig{})
		for _, id := range numbers(1, 30) {
			synctest.Wait()
			publish(t, broker, "topic", id)
			receiveAndAck(t, idle, id)
		}
		held.Ack()
		_ = broker.Close()
	})
}
