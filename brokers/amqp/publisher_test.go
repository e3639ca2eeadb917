package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

func newMessages(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessage(uuid.NewString(), fmt.Appendf(nil, "%d", i))
	}
	return messages
}

// TestUnroutable: each message is told by itself, also among many that are taken and have
// the same ids.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		b := newBroker(t, parse(t, address))
		somewhere, nowhere := newTopic(), newTopic()
		if err := subscriber(t, b, brokers.SubscriberConfig{}).SubscribeInitialize(somewhere); err != nil {
			t.Fatal(err)
		}
		p := publisher(t, b)
		messages := newMessages(200)
		var calls sync.WaitGroup
		for i := range 8 {
			calls.Go(func() {
				if i%2 == 0 {
					if err := p.Publish(somewhere, messages...); err != nil {
						t.Error(err)
					}
					return
				}
				err := p.Publish(nowhere, messages...)
				if !errors.Is(err, amqp.ErrUnroutable) || !strings.Contains(err.Error(), "190 messages more of 200") {
					t.Errorf("%v", err)
				}
			})
		}
		calls.Wait()
		if err := p.Publish(nowhere, messages[0]); !errors.Is(err, amqp.ErrUnroutable) || !strings.Contains(err.Error(), nowhere) || !strings.Contains(err.Error(), messages[0].UUID) {
			t.Errorf("%v", err)
		}
	})
}

// testMessageOverALimit: a message that is too large is named, and takes no other with
// it, though the broker closes the channel of them all.
func testMessageOverALimit(t *testing.T, server *rabbitmq.Server) {
	const limit = maxMessageSize
	b := newBroker(t, parse(t, server.URL()))
	topic := newTopic()
	s := subscriber(t, b, brokers.SubscriberConfig{InFlight: 100})
	out := subscribe(t, s, topic)
	p := publisher(t, b)
	small := newMessages(50)
	var calls sync.WaitGroup
	for i := range 5 {
		calls.Go(func() {
			for j := range 10 {
				if err := p.Publish(topic, small[i*10+j]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	huge := message.NewMessage("huge", make([]byte, limit+1))
	other := message.NewMessage("other", nil)
	for range 2 { // the second is refused here
		err := p.Publish(topic, other, huge)
		for _, says := range []string{`"huge"`, "2 of 2", fmt.Sprint(limit), fmt.Sprint(limit + 1), "max_message_size"} {
			if !errors.Is(err, amqp.ErrTooLarge) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), `"other"`) {
				t.Errorf("the error is %v, which does not say %q", err, says)
			}
		}
	}
	calls.Wait()
	got := map[string]bool{}
	for len(got) < len(small)+1 {
		msg, _ := receive(t, out)
		got[msg.UUID] = true
		msg.Ack()
	}
}

// TestMistakesOfMessages are those that the client, or the server, would answer by
// cutting, by closing the channel, or the connection.
func TestMistakesOfMessages(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Publish.MaxBytes = 1000
		b := newBroker(t, config)
		topic := newTopic()
		out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
		p := publisher(t, b)
		for name, c := range map[string]struct {
			topic string
			msg   *message.Message
			says  string
		}{
			"nil":             {topic, nil, "is nil"},
			"no topic":        {"", newMessages(1)[0], "topic is empty"},
			"long topic":      {strings.Repeat("t", 256), newMessages(1)[0], "256 bytes"},
			"reserved topic":  {"amq.topic", newMessages(1)[0], "amq."},
			"large":           {topic, message.NewMessage("a", make([]byte, 1001)), "max_message_bytes"},
			"large metadata":  {topic, with("name", strings.Repeat("v", 200_000)), "frame_max"},
			"long name":       {topic, with(strings.Repeat("n", 256), ""), "255 bytes"},
			"list of queues":  {topic, with("CC", "a"), "reserved"},
			"header of UUIDs": {topic, with("_watermill_message_uuid", "a"), "reserved"},
		} {
			if err := p.Publish(c.topic, c.msg); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		last := with("name", strings.Repeat("v", 100_000))
		last.UUID = strings.Repeat("u", 300)
		if err := p.Publish(topic, last); err != nil {
			t.Fatal(err)
		}
		msg, d := receive(t, out)
		if !msg.Equals(last) || d.NativeID == "" {
			t.Errorf("it came as %.20q, %q", msg.UUID, d.NativeID)
		}
		msg.Ack()
	})
}

func with(name, value string) *message.Message {
	msg := newMessages(1)[0]
	msg.Metadata.Set(name, value)
	return msg
}

// TestMarshalMistake: a property that the broker refuses is told to the one who set it.
func TestMarshalMistake(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Publish.Marshal = func(_ string, msg *message.Message, p *amqp091.Publishing) error {
			p.ContentType = "text/plain"
			if msg.UUID == "bad" {
				p.UserId = "somebody else"
			}
			return nil
		}
		b := newBroker(t, config)
		topic := newTopic()
		out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 100}), topic)
		messages := newMessages(3)
		messages[1].UUID = "bad"
		err := publisher(t, b).Publish(topic, messages...)
		if !errors.Is(err, amqp.ErrRefused) || !strings.Contains(err.Error(), "user_id") || !strings.Contains(err.Error(), "2 of 3") || strings.Contains(err.Error(), "1 of 3") {
			t.Errorf("%v", err)
		}
		for got := map[string]bool{}; len(got) < 2; {
			msg, _ := receive(t, out)
			got[msg.UUID] = true
			msg.Ack()
		}
	})
}

func TestFullQueue(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Topology.Arguments = amqp091.Table{"x-max-length": int64(1)}
		b := newBroker(t, config)
		topic := newTopic()
		s := subscriber(t, b, brokers.SubscriberConfig{})
		if err := s.SubscribeInitialize(topic); err != nil {
			t.Fatal(err)
		}
		p := publisher(t, b)
		var err error
		for deadline := time.Now().Add(within); err == nil && time.Now().Before(deadline); { // a quorum queue notices a moment later
			err = p.Publish(topic, newMessages(1)...)
		}
		if !errors.Is(err, amqp.ErrRefused) || !errors.Is(err, brokers.ErrUnavailable) || !strings.Contains(err.Error(), "full") {
			t.Errorf("%v", err)
		}
	})
}

// testMemoryAlarm: Publish ends in time with the reason, and works again afterwards;
// consuming goes on.
func testMemoryAlarm(t *testing.T, server *rabbitmq.Server) {
	config := parse(t, server.URL())
	config.Publish.Timeout = 3 * time.Second
	b := newBroker(t, config)
	topic := newTopic()
	s := subscriber(t, b, brokers.SubscriberConfig{})
	out := subscribe(t, s, topic)
	p := publisher(t, b)
	if err := p.Publish(topic, newMessages(2)...); err != nil {
		t.Fatal(err)
	}
	control(t, server, "set_vm_memory_high_watermark", "absolute", "1MB")
	for range 2 {
		err := p.Publish(topic, newMessages(1)...)
		if !errors.Is(err, brokers.ErrUnavailable) || !strings.Contains(err.Error(), "memory") {
			t.Errorf("Publish returned %v", err)
		}
	}
	if err := b.Ping(t.Context()); !errors.Is(err, brokers.ErrUnavailable) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("Ping returned %v", err)
	}
	if _, err := b.Subscriber(brokers.SubscriberConfig{Group: "other"}); err != nil {
		t.Error(err)
	}
	for range 2 {
		msg, _ := receive(t, out)
		msg.Ack()
	}
	control(t, server, "set_vm_memory_high_watermark", "absolute", "512MB")
	last := newMessages(1)[0]
	if err := untilPublished(p, topic, last); err != nil {
		t.Fatal(err)
	}
	for {
		msg, _ := receive(t, out)
		msg.Ack()
		if msg.UUID == last.UUID {
			break
		}
	}
}

func untilPublished(p message.Publisher, topic string, messages ...*message.Message) error {
	for deadline := time.Now().Add(within); ; {
		err := p.Publish(topic, messages...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func control(t *testing.T, server *rabbitmq.Server, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Control(ctx, args...); err != nil {
		t.Fatal(err)
	}
}

// TestConnectionIsCutWhilePublishing: what was not confirmed is published again, and
// nothing is lost.
func TestConnectionIsCutWhilePublishing(t *testing.T) {
	t.Parallel()
	const n = 5000
	byTurns(t, func(t *testing.T, address string) {
		b, wires := newTapped(t, parse(t, address))
		topic := newTopic()
		s := subscriber(t, b, brokers.SubscriberConfig{InFlight: 500})
		out := subscribe(t, s, topic)
		published := make(chan error, 1)
		messages := newMessages(n)
		go func() { published <- publisher(t, b).Publish(topic, messages...) }()
		got, cuts, deliveries := map[string]bool{}, 0, 0
		for len(got) < n {
			msg, _ := receive(t, out)
			got[msg.UUID] = true
			deliveries++
			msg.Ack()
			if cuts < 4 && len(got) > (cuts+1)*n/6 {
				wires.CutPublishing()
				cuts++
			}
		}
		if err := <-published; err != nil {
			t.Error(err)
		}
		t.Logf("%d messages, %d cuts, %d deliveries", n, cuts, deliveries)
	})
}

// TestQueueThatComesBackLater: after a lost connection a publisher waits for the queue of
// a subscriber that is not back yet.
func TestQueueThatComesBackLater(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		b, wires := newTapped(t, parse(t, address))
		topic := newTopic()
		out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
		p := publisher(t, b)
		if err := p.Publish(topic, newMessages(1)...); err != nil {
			t.Fatal(err)
		}
		msg, _ := receive(t, out)
		msg.Ack()
		others := channel(t, address)
		if err := others.QueueUnbind(topic+"_group", "", topic, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(topic, newMessages(1)...); !errors.Is(err, amqp.ErrUnroutable) {
			t.Errorf("without a queue, Publish returned %v", err)
		}
		wires.CutPublishing()
		published := make(chan error, 1)
		messages := newMessages(3)
		go func() { published <- p.Publish(topic, messages...) }()
		select {
		case err := <-published:
			t.Fatalf("a moment after the connection was lost, Publish returned %v", err)
		case <-time.After(time.Second / 2):
		}
		if err := others.QueueBind(topic+"_group", "", topic, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-published; err != nil {
			t.Error(err)
		}
		for range messages {
			msg, _ := receive(t, out)
			msg.Ack()
		}
	})
}
