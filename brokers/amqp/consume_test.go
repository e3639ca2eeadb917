package amqp_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// TestQueueIsDeletedWhileConsuming: the queue is made again, and consumed. No message
// without content reaches the handler, whose channel stays open.
func TestQueueIsDeletedWhileConsuming(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		b := newBroker(t, parse(t, address))
		topic := newTopic()
		out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 4}), topic)
		p := publisher(t, b)
		for range 3 {
			sent := newMessages(2)
			if err := untilPublished(p, topic, sent...); err != nil {
				t.Fatal(err)
			}
			held, _ := receive(t, out)
			other, _ := receive(t, out)
			other.Ack()
			if _, err := channel(t, address).QueueDelete(topic+"_group", false, false, false); err != nil {
				t.Fatal(err)
			}
			<-held.Context().Done() // it is known to be lost
			held.Ack()
		}
		last := newMessages(1)[0]
		if err := untilPublished(p, topic, last); err != nil {
			t.Fatal(err)
		}
		if msg, d := receive(t, out); msg.UUID != last.UUID || d.Suspect {
			t.Errorf("%q came, %+v", msg.UUID, d)
		} else {
			msg.Ack()
		}
	})
}

// testConsumerTimeout: a handler that takes longer than the server allows loses its
// message, which comes again; its late ack counts for nothing.
func testConsumerTimeout(t *testing.T, server *rabbitmq.Server) {
	control(t, server, "eval", "application:set_env(rabbit, consumer_timeout, 2000).")
	defer control(t, server, "eval", "application:set_env(rabbit, consumer_timeout, 1800000).")
	b := newBroker(t, parse(t, server.URL()))
	topic := newTopic()
	out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 2}), topic)
	sent := newMessages(1)[0]
	if err := publisher(t, b).Publish(topic, sent); err != nil {
		t.Fatal(err)
	}
	late, d := receive(t, out)
	if d.Suspect || d.Count != 1 {
		t.Errorf("at first: %+v", d)
	}
	select {
	case <-late.Context().Done():
	case <-time.After(within):
		t.Fatal("the handler does not hear of the timeout")
	}
	again, d := receive(t, out)
	if again.UUID != sent.UUID || !d.Suspect || d.Count != 2 {
		t.Errorf("afterwards: %q, %+v", again.UUID, d)
	}
	late.Ack()
	again.Ack()
	select {
	case msg := <-out:
		t.Errorf("%q came once more", msg.UUID)
	case <-time.After(time.Second):
	}
}

// TestConnectionIsCutWhileConsuming: with handlers running. Every message is acked in the
// end, and none is in two hands at once for long.
func TestConnectionIsCutWhileConsuming(t *testing.T) {
	t.Parallel()
	const n = 300
	byTurns(t, func(t *testing.T, address string) {
		b, wires := newTapped(t, parse(t, address))
		topic := newTopic()
		s := subscriber(t, b, brokers.SubscriberConfig{InFlight: 16})
		out := subscribe(t, s, topic)
		if err := publisher(t, b).Publish(topic, newMessages(n)...); err != nil {
			t.Fatal(err)
		}
		got, suspects, cuts := map[string]int{}, 0, 0
		for len(got) < n {
			msg, d := receive(t, out)
			if d.Suspect {
				suspects++
			}
			if got[msg.UUID]++; got[msg.UUID] > 1 && !d.Suspect {
				t.Errorf("a message came again without suspicion: %+v", d)
			}
			if cuts < 3 && len(got) > (cuts+1)*n/4 {
				wires.CutSubscriber(s) // with this one and others in hand
				cuts++
			}
			msg.Ack()
		}
		t.Logf("%d messages, %d cuts, %d suspects", n, cuts, suspects)
	})
}

// testServerThatHangs is noticed by its heartbeats; consuming resumes by itself, and Close
// does not wait for it.
func testServerThatHangs(t *testing.T, server *rabbitmq.Server) {
	config := parse(t, server.URL())
	config.Heartbeat, config.ConnectTimeout = time.Second, 3*time.Second
	b := newBroker(t, config)
	topic := newTopic()
	out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
	other := subscriber(t, b, brokers.SubscriberConfig{Group: "other"})
	subscribe(t, other, topic)
	p := publisher(t, b)
	if err := p.Publish(topic, newMessages(1)...); err != nil {
		t.Fatal(err)
	}
	held, _ := receive(t, out)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("Close took %s", took)
	}
	select {
	case <-held.Context().Done():
	case <-time.After(within):
		t.Error("nobody notices that the server hangs")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	again, d := receive(t, out)
	if again.UUID != held.UUID || !d.Suspect {
		t.Errorf("%q came, %+v", again.UUID, d)
	}
	again.Ack()
	if err := untilPublished(p, topic, newMessages(1)...); err != nil {
		t.Error(err)
	}
}

// TestDeclaredOtherwise: the error has the server's text, and says what to do; the queue is
// left as it is.
func TestDeclaredOtherwise(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Topology.DeliveryLimit = 30
		topic := newTopic()
		first := newBroker(t, config)
		out := subscribe(t, subscriber(t, first, brokers.SubscriberConfig{}), topic)
		s := subscriber(t, newBroker(t, parse(t, address)), brokers.SubscriberConfig{})
		_, err := s.Subscribe(t.Context(), topic)
		for _, again := range []error{err, s.SubscribeInitialize(topic)} {
			for _, says := range []string{"queue " + topic + "_group", "x-delivery-limit", "30", "20", "declare=false"} {
				if !errors.Is(again, amqp.ErrDeclaredOtherwise) || !strings.Contains(again.Error(), says) {
					t.Errorf("the error is %v, which does not say %q", again, says)
				}
			}
		}

		asItIs := parse(t, address)
		asItIs.Topology.AsIs = true
		b := newBroker(t, asItIs)
		if got := b.Capabilities(); got.DeliveryLimit.Known || got.FreeGiveBack || got.DeliveryCount {
			t.Errorf("of queues that others have declared: %+v", got)
		}
		subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
		if err := publisher(t, b).Publish(topic, newMessages(8)...); err != nil {
			t.Fatal(err)
		}
		msg, _ := receive(t, out) // they share the queue
		msg.Ack()
		if _, err := subscriber(t, b, brokers.SubscriberConfig{Group: "none"}).Subscribe(t.Context(), topic); !errors.Is(err, amqp.ErrNotThere) {
			t.Errorf("Subscribe to a queue that nobody has declared returned %v", err)
		}
		if err := publisher(t, b).Publish("nowhere-"+topic, newMessages(1)...); !errors.Is(err, amqp.ErrNotThere) {
			t.Errorf("Publish to an exchange that nobody has declared returned %v", err)
		}
	})
}

// testNotAllowed: what the user may not do is told at once.
func testNotAllowed(t *testing.T, server *rabbitmq.Server) {
	control(t, server, "add_user", "reader", "s3cret")
	control(t, server, "set_permissions", "reader", "^mine", "^mine", "^mine")
	config := parse(t, server.URL())
	config.Username, config.Password = "reader", "s3cret"
	b := newBroker(t, config)
	s := subscriber(t, b, brokers.SubscriberConfig{})
	_, err := s.Subscribe(t.Context(), "yours")
	for _, err := range []error{err, s.SubscribeInitialize("yours"), publisher(t, b).Publish("yours", newMessages(1)...)} {
		if !errors.Is(err, amqp.ErrNotAllowed) || !strings.Contains(err.Error(), "set_permissions") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
	if err := channel(t, server.URL()).ExchangeDeclare("yours", "fanout", true, false, false, false, amqp091.Table{}); err != nil {
		t.Fatal(err)
	}
	config = parse(t, server.URL())
	config.Username, config.Password, config.Topology.AsIs = "reader", "s3cret", true
	if err := publisher(t, newBroker(t, config)).Publish("yours", newMessages(1)...); !errors.Is(err, amqp.ErrNotAllowed) {
		t.Errorf("%v", err)
	}
}

// TestMistakesOfNames are told before the broker is asked.
func TestMistakesOfNames(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		b := newBroker(t, parse(t, address))
		for topic, says := range map[string]string{"": "is empty", strings.Repeat("t", 250): "shorten", "amq.topic": "amq."} {
			_, err := subscriber(t, b, brokers.SubscriberConfig{}).Subscribe(t.Context(), topic)
			if err == nil || !strings.Contains(err.Error(), says) || errors.Is(err, brokers.ErrUnavailable) {
				t.Errorf("%.20q: %v", topic, err)
			}
		}
		for _, config := range []brokers.SubscriberConfig{{}, {Group: "g", InFlight: -1}, {Group: "g", InFlight: 1 << 16}, {Group: "g", DrainTimeout: -1}} {
			if _, err := b.Subscriber(config); err == nil || !strings.Contains(err.Error(), "SubscriberConfig.") {
				t.Errorf("%+v: %v", config, err)
			}
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
