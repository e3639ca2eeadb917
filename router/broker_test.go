package router_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	_ "github.com/millpond-go/millpond/brokers/amqp"
	_ "github.com/millpond-go/millpond/brokers/amqp/official"
	_ "github.com/millpond-go/millpond/brokers/kafka"
	_ "github.com/millpond-go/millpond/brokers/kafka/official"
	_ "github.com/millpond-go/millpond/brokers/sqs"
	_ "github.com/millpond-go/millpond/brokers/sqs/official"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
	"github.com/millpond-go/millpond/router"
)

// anyBroker is a broker that a service may run on.
type anyBroker struct {
	url func(t *testing.T) router.URL

	publishFirst bool // topics are made by publishing, and must be there to subscribe
	queues       bool // a topic is a queue, which its readers share
}

func onKafka(scheme string, publishFirst bool) anyBroker {
	return anyBroker{publishFirst: publishFirst, url: func(t *testing.T) router.URL {
		return router.NewURL(scheme + "://" + strings.Join(testenv.Kafka(t), ",") + "/?create_topics=true")
	}}
}

func onRabbitMQ(scheme string, version rabbitmq.Version) anyBroker {
	return anyBroker{url: func(t *testing.T) router.URL {
		return router.NewURL(strings.Replace(testenv.RabbitMQ(t, version), "amqp://", scheme+"://", 1))
	}}
}

func onSQS(scheme, more string) anyBroker {
	return anyBroker{queues: true, url: func(t *testing.T) router.URL {
		return router.NewURL(testenv.SQS(t).URL(scheme) + "&create_queues=true&wait=1s" + more)
	}}
}

var anyBrokers = map[string]anyBroker{
	"memory":                          {url: func(*testing.T) router.URL { return router.NewURL("memory://") }, publishFirst: true},
	"kafka":                           onKafka("kafka", true),
	"kafka through watermill-kafka":   onKafka("kafka+watermill", false), // create_topics makes what is subscribed to
	"rabbitmq, packaged":              onRabbitMQ("amqp", rabbitmq.Packaged),
	"rabbitmq, newest":                onRabbitMQ("amqp", rabbitmq.Newest),
	"rabbitmq through watermill-amqp": onRabbitMQ("amqp+watermill", rabbitmq.Newest),
	"sqs":                             onSQS("sqs", ""),
	"sqs through watermill-aws":       onSQS("sqs+watermill", "&visibility=6m"),
}

// file is a service's configuration, as a file has it.
func (r *rig) file(broker router.URL) string {
	return fmt.Sprintf(`
service: shop
broker: {url: %q, group: %q}
store: {url: %q, migrate: true}
retry: {backoff_min: 10ms}
retry_worker: {poll_interval: 20ms}
`, broker.Reveal(), uuid.NewString(), r.store)
}

func TestOneURLChangesTheBroker(t *testing.T) {
	for name, at := range anyBrokers {
		t.Run(name, func(t *testing.T) { runOn(t, at) })
	}
}

// runOn runs a service of two handlers. Each gets all messages, each of them twice.
func runOn(t *testing.T, at anyBroker) {
	r := newRig(t)
	c, err := read(r.file(at.url(t)))
	require.NoError(t, err)
	c.Program = router.Program{Logger: r.config().Program.Logger, NoSignals: true}
	svc := r.service(c)
	topic := "orders-" + uuid.NewString()
	topics := []string{topic}
	if at.queues {
		topics = append(topics, topic+"-mail")
	}
	publish := func() {
		for i := range 20 {
			for _, to := range topics {
				require.NoError(t, svc.Publisher().Publish(to, message.NewMessage(fmt.Sprint(i%10), nil)))
			}
		}
	}
	var failed atomic.Bool
	svc.Handle("stock", topic, func(msg *message.Message) error {
		if msg.UUID == "3" && !failed.Swap(true) {
			return errors.New("not yet")
		}
		return write(msg, "stock "+msg.UUID)
	})
	svc.Handle("mail", topics[len(topics)-1], func(msg *message.Message) error { return write(msg, "mail "+msg.UUID) })
	if at.publishFirst {
		publish()
	}
	stop := r.run(svc)
	if !at.publishFirst {
		publish()
	}
	var want []string
	for _, name := range []string{"mail ", "stock "} {
		for i := range 10 {
			want = append(want, name+fmt.Sprint(i))
		}
	}
	r.reach(want...)
	require.NoError(t, stop())
	require.Equal(t, want, r.effects())
}

// What was rolled back when a service stopped comes again to the next one, and what was
// committed does not.
func TestDrainOnKafka(t *testing.T) {
	r := newRig(t)
	c, err := read(r.file(router.NewURL("kafka://" + strings.Join(testenv.Kafka(t), ",") + "/?create_topics=true")))
	require.NoError(t, err)
	c.Program = router.Program{Logger: r.config().Program.Logger, NoSignals: true}
	c.DrainTimeout = time.Second
	c.Inbox.Retry.MaxAttempts = 1
	topic := "orders-" + uuid.NewString()
	svc := r.service(c)
	require.NoError(t, svc.Publisher().Publish(topic, message.NewMessage("1", nil), message.NewMessage("2", nil)))
	begun := make(chan struct{})
	svc.Handle("stock", topic, func(msg *message.Message) error {
		err := write(msg, msg.UUID)
		if msg.UUID == "2" {
			close(begun)
			<-msg.Context().Done()
		}
		return err
	})
	stop := r.run(svc)
	await(t, begun)
	before := time.Now()
	require.NoError(t, stop())
	require.Less(t, time.Since(before), 20*time.Second)
	require.Equal(t, []string{"1"}, r.effects())

	svc = r.service(c)
	var got []string
	svc.Handle("stock", topic, func(msg *message.Message) error {
		got = append(got, msg.UUID)
		return write(msg, msg.UUID)
	})
	stop = r.run(svc)
	r.reach("1", "2")
	require.NoError(t, stop())
	require.Equal(t, []string{"2"}, got, "the first was acked")
}
