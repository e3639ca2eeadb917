package amqp_test

import (
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	steps := []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	for delay, want := range map[time.Duration]time.Duration{
		0: time.Second, time.Millisecond: time.Second, time.Second: time.Second, 2 * time.Second: time.Second,
		5 * time.Second: 10 * time.Second, 12 * time.Second: 10 * time.Second, 30 * time.Second: time.Minute,
		4 * time.Minute: time.Minute, 5 * time.Minute: 10 * time.Minute, time.Hour: 10 * time.Minute,
	} {
		if got, left := amqp.Step(steps, delay); got != want || left != max(0, delay-want) {
			t.Errorf("%s: a step of %s, %s left", delay, got, left)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		delay := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "delay"))
		var waited time.Duration
		ways := 0
		for left := delay; left > 0 || ways == 0; ways++ {
			var chosen time.Duration
			chosen, left = amqp.Step(steps, left)
			waited += chosen
		}
		if waited < delay || waited > 2*delay+time.Second || ways > 20 {
			t.Fatalf("%s became %s in %d ways", delay, waited, ways)
		}
	})
}

// giveBack nacks the message and receives it again. It returns how long that took.
func giveBack(t *testing.T, msg *message.Message, out <-chan *message.Message, g brokers.GiveBack) (*message.Message, brokers.Delivery, time.Duration) {
	t.Helper()
	if !brokers.SetGiveBack(msg, g) {
		t.Fatal("the message has no delivery")
	}
	began := time.Now()
	msg.Nack()
	again, d := receive(t, out)
	return again, d, time.Since(began)
}

// TestDelays: whatever the delay and the reason, the message comes no sooner, as it was,
// and is counted.
func TestDelays(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Consume.RetryDelays = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond}
		config.Consume.ProducerTime = true
		for _, kind := range []amqp.QueueType{amqp.QueueQuorum, amqp.QueueClassic} {
			config.Topology.QueueType = kind
			b := newBroker(t, config)
			topic := newTopic()
			out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
			at := time.Unix(1_700_000_000, 0)
			err := channel(t, address).PublishWithContext(t.Context(), topic, "a key", true, false, amqp091.Publishing{
				Headers: amqp091.Table{
					"number": int64(7), "x-death": []any{amqp091.Table{"queue": "elsewhere", "count": int64(1)}}, "x-first-death-queue": "elsewhere",
					"CC": []any{}, "table": amqp091.Table{"a": nil},
				},
				MessageId: "id", Timestamp: at, Type: "type", UserId: "guest", Expiration: "60000", Body: []byte("payload"),
			})
			if err != nil {
				t.Fatal(err)
			}
			msg, first := receive(t, out)
			metadata := maps.Clone(msg.Metadata)
			if _, has := metadata["CC"]; has || metadata["number"] != "7" || metadata["table"] != `{"a":null}` || first.NativeID != "id" || !first.Time.Equal(at) {
				t.Errorf("metadata %q, %+v", metadata, first)
			}
			for i, g := range []brokers.GiveBack{
				{After: 50 * time.Millisecond},
				{After: 1300 * time.Millisecond},
				{},
				{After: 300 * time.Millisecond, Failed: true},
				{After: 700 * time.Millisecond, Failed: true},
				{Failed: true},
				{After: 10 * time.Millisecond},
			} {
				var d brokers.Delivery
				var took time.Duration
				msg, d, took = giveBack(t, msg, out, g)
				if took < g.After {
					t.Errorf("%s, %+v: it came after %s", kind, g, took)
				}
				if !maps.Equal(msg.Metadata, metadata) || string(msg.Payload) != "payload" {
					t.Errorf("%s, %+v: metadata %q, payload %q", kind, g, msg.Metadata, msg.Payload)
				}
				want := i + 2
				if kind == amqp.QueueClassic {
					want = 0
				}
				if d.Count != want || !d.Suspect || d.NativeID != "id" || !d.Time.Equal(at) {
					t.Errorf("%s, %+v: %+v, want the count %d", kind, g, d, want)
				}
			}
			msg.Ack()
		}
	})
}

// TestFailuresEndAsDeadLetters: whether they are counted by the queue or by copies, with
// "not now" in between, which does not count if it is delayed.
func TestFailuresEndAsDeadLetters(t *testing.T) {
	t.Parallel()
	const limit = 3
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Consume.RetryDelays = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond}
		config.Topology.DeliveryLimit = limit
		b := newBroker(t, config)
		for name, failure := range map[string][]brokers.GiveBack{
			"at once": {{Failed: true}},
			"delayed": {{Failed: true, After: time.Second / 2}},
			"both":    {{Failed: true, After: time.Second / 2}, {After: 300 * time.Millisecond}, {Failed: true}, {After: 300 * time.Millisecond}},
		} {
			topic := newTopic()
			out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
			sent := with("name", name)
			if err := publisher(t, b).Publish(topic, sent); err != nil {
				t.Fatal(err)
			}
			msg, _ := receive(t, out)
			failed := 0
			for i := 0; ; i++ {
				g := failure[i%len(failure)]
				if g.Failed {
					if failed++; failed > limit {
						brokers.SetGiveBack(msg, g)
						msg.Nack()
						break
					}
				}
				var d brokers.Delivery
				msg, d, _ = giveBack(t, msg, out, g)
				if d.Count != i+2 {
					t.Errorf("%s: delivery %d is %+v", name, i+2, d)
				}
			}
			dead := awaitDead(t, address, topic+"_group.dead")
			if read := amqp.ReadDelivery(&dead); read.UUID != sent.UUID || read.Metadata["name"] != name || read.Metadata["x-death"] == "" {
				t.Errorf("%s: dead is %q, %q", name, read.UUID, read.Metadata)
			}
		}
	})
}

func awaitDead(t *testing.T, address, queue string) amqp091.Delivery {
	t.Helper()
	ch := channel(t, address)
	var dead amqp091.Delivery
	testenv.Eventually(t, "a dead letter is in "+queue, func() bool {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		dead = d
		return ok
	})
	return dead
}

// testDelaysSurviveTheBroker: kill -9 while messages wait, pass by, and are put aside.
func testDelaysSurviveTheBroker(t *testing.T, server *rabbitmq.Server) {
	const n = 300
	config := parse(t, server.URL())
	config.Consume.RetryDelays = []time.Duration{200 * time.Millisecond, time.Second}
	b := newBroker(t, config)
	topic := newTopic()
	out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 50}), topic)
	p := publisher(t, b)
	if err := p.Publish(topic, newMessages(n)...); err != nil {
		t.Fatal(err)
	}
	times, acked, kills := map[string]int{}, map[string]bool{}, 0
	for received := 0; len(acked) < n; received++ {
		msg, _ := receive(t, out)
		if times[msg.UUID]++; times[msg.UUID] > 3 {
			acked[msg.UUID] = true
			msg.Ack()
		} else {
			brokers.SetGiveBack(msg, brokers.GiveBack{After: 900 * time.Millisecond, Failed: times[msg.UUID]%2 == 0})
			msg.Nack()
		}
		if kills < 1 && received > (kills+1)*n {
			kills++
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d messages, %d kills", n, kills)
}

// TestRetryQueueIsDeleted: by somebody, while it is in use. It is made again.
func TestRetryQueueIsDeleted(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Consume.RetryDelays = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}
		b := newBroker(t, config)
		topic := "topic-" + uuid.NewString()
		out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
		if err := publisher(t, b).Publish(topic, newMessages(1)...); err != nil {
			t.Fatal(err)
		}
		msg, _ := receive(t, out)
		for range 3 {
			msg, _, _ = giveBack(t, msg, out, brokers.GiveBack{After: 250 * time.Millisecond})
			if _, err := channel(t, address).QueueDelete(topic+"_group.retry.300ms", false, false, false); err != nil {
				t.Fatal(err)
			}
		}
		msg.Ack()
	})
}
