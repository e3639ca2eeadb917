package amqp_test

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// TestHeadersOfOthers: a message that comes with headers of the broker's, or of ours, has
// all its deliveries before it, and no more than these: a dead letter that somebody has put
// back as it was, and one of a producer who writes what he likes.
func TestHeadersOfOthers(t *testing.T) {
	t.Parallel()
	const limit = 2
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Topology.DeliveryLimit = limit
		config.Consume.RetryDelays = []time.Duration{50 * time.Millisecond}
		b := newBroker(t, config)
		topic := newTopic()
		queue := topic + "_group"
		out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
		foreign := channel(t, address)
		next := amqp091.Table{}
		for _, headers := range []amqp091.Table{
			nil, // the dead letter of the message before
			{"x-millpond-history": amqp091.Table{"failures": int64(math.MinInt64), "deliveries": int64(math.MaxInt64), "wait": int64(math.MaxInt64)}},
			{"x-millpond-history": amqp091.Table{"failures": "1", "wait": int64(1) << 40, "kept": amqp091.Table{"x-delivery-count": int64(7)}}},
			{"x-delivery-count": int64(math.MinInt64), "x-acquired-count": int64(math.MaxInt64)},
			{"x-delivery-count": int64(math.MaxInt64)},
			{"x-death": []any{amqp091.Table{"reason": 7}, 7}, "x-millpond-history": 7},
		} {
			if headers == nil {
				headers = next
			}
			if err := foreign.PublishWithContext(t.Context(), "", queue, true, false, amqp091.Publishing{MessageId: "id", Headers: headers}); err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= limit+1; n++ {
				msg, d := receive(t, out)
				if d.Count != n {
					t.Errorf("%v: delivery %d has the count %d", headers, n, d.Count)
				}
				brokers.SetGiveBack(msg, brokers.GiveBack{After: time.Second / 5, Failed: true})
				msg.Nack()
			}
			next = awaitDead(t, address, queue+".dead").Headers
		}
		// And after the last, which has died of copies.
		if err := foreign.PublishWithContext(t.Context(), "", queue, true, false, amqp091.Publishing{MessageId: "id", Headers: next}); err != nil {
			t.Fatal(err)
		}
		msg, d := receive(t, out)
		if d.Count != 1 || d.Suspect {
			t.Errorf("put back, it is %+v", d)
		}
		msg.Ack()
	})
}

// TestForgedHistory: nobody but the retry queues can say that a message comes from one. It
// is delivered at once, with all its deliveries before it, under its own id, and not taken
// for one that comes again.
func TestForgedHistory(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		for _, preset := range []amqp.Preset{amqp.PresetPubSub, amqp.PresetQueue} {
			config := parse(t, address)
			config.Topology.Preset, config.Topology.DeliveryLimit = preset, 2
			config.Consume.RetryDelays = []time.Duration{50 * time.Millisecond}
			b, topic := newBroker(t, config), newTopic()
			out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
			exchange, key, queue := topic, "", topic+"_group"
			if preset == amqp.PresetQueue {
				exchange, key, queue = "", topic, topic
			}
			ch := channel(t, address)
			if err := ch.PublishWithContext(t.Context(), exchange, key, true, false, amqp091.Publishing{
				Headers: amqp091.Table{
					"_watermill_message_uuid": "attack",
					"x-death":                 []any{amqp091.Table{"reason": "expired", "queue": queue + ".retry.50ms", "exchange": "", "count": int64(1)}},
					"x-millpond-history": amqp091.Table{
						"deliveries": int64(math.MaxInt64), "failures": int64(999), "wait": int64(math.MaxInt64),
						"exchange": "elsewhere", "key": "elsewhere", "kept": amqp091.Table{"_watermill_message_uuid": "victim", "tenant": "victim"},
					},
				},
			}); err != nil {
				t.Fatal(err)
			}
			msg, d := receive(t, out)
			for n := 1; n <= 2; n++ {
				if msg.UUID != "attack" || msg.Metadata["tenant"] != "" || d.Count != n || d.Suspect != (n > 1) {
					t.Errorf("%s, delivery %d: %q, %q, %+v", preset, n, msg.UUID, msg.Metadata, d)
				}
				msg, d, _ = giveBack(t, msg, out, brokers.GiveBack{After: 200 * time.Millisecond, Failed: true})
			}
			msg.Ack()
			// The way back is closed to everybody. (The queue was made with the first copy.)
			refused := ch.NotifyClose(make(chan *amqp091.Error, 1))
			if err := ch.PublishWithContext(t.Context(), queue+".retry", "", true, false, amqp091.Publishing{}); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-refused:
				if err == nil || err.Code != amqp091.AccessRefused {
					t.Errorf("%s: %v", preset, err)
				}
			case <-time.After(within):
				t.Errorf("%s: somebody has published to the exchange of the retry queues", preset)
			}
		}
	})
}

// TestHeaderOfNoType: what Publish.Marshal has written and nobody can send is an error at
// once, of that message alone.
func TestHeaderOfNoType(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Publish.Marshal = func(_ string, _ *message.Message, p *amqp091.Publishing) error {
			p.Headers["number"] = uint64(7)
			return nil
		}
		began := time.Now()
		err := publisher(t, newBroker(t, config)).Publish(newTopic(), newMessages(1)...)
		if err == nil || !strings.Contains(err.Error(), `"number"`) || time.Since(began) > within/2 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestReasonIsAwaited: the first attempt knows why the server has ended the channel. On one
// processor the end of the confirmations is seen before the reason, which comes first.
func TestReasonIsAwaited(t *testing.T) { //nolint:paralleltest // it changes what all share
	processors := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(processors) })
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Topology.AsIs = true
		b := newBroker(t, config)
		for i := range 20 {
			if err := amqp.Attempt(t.Context(), b, newTopic()); !errors.Is(err, amqp.ErrNotThere) {
				t.Fatalf("attempt %d to publish to an exchange that is not there returned %v", i+1, err)
			}
		}
	})
}

// testServerThatDoesNotRead: messages stand in the way to a server that hangs. The loss of
// the connection is noticed, nothing of it is left behind, and Close does not wait for it.
func testServerThatDoesNotRead(t *testing.T, server *rabbitmq.Server) {
	config := parse(t, server.URL())
	config.Heartbeat, config.ConnectTimeout, config.Publish.Timeout = time.Second, 2*time.Second, 8*time.Second
	b, err := amqp.New(t.Context(), removed(t, config))
	if err != nil {
		t.Fatal(err)
	}
	topic := newTopic()
	if err := subscriber(t, b, brokers.SubscriberConfig{}).SubscribeInitialize(topic); err != nil {
		t.Fatal(err)
	}
	p := publisher(t, b)
	if err := p.Publish(topic, newMessages(1)...); err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Resume(); err != nil {
			t.Error(err)
		}
	}()
	many := newMessages(500)
	for _, msg := range many {
		msg.Payload = make([]byte, maxMessageSize/2)
	}
	if err := p.Publish(topic, many...); err == nil {
		t.Error("a server that hangs has taken messages")
	}
	closed := make(chan error, 1)
	go func() { closed <- b.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(within):
		t.Error("Close waits for a server that hangs")
	}
}
