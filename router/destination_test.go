package router_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
)

const destinations = valid + `destinations:
  kafka-eu:
    url: amqp://app@b1
    topic: shipments
    topics: [shipments, returns]
    max_bytes: 1000
  events: {}
`

func TestDestinationsOfAFile(t *testing.T) {
	c, err := read(destinations, "MILLPOND_DESTINATIONS_KAFKA_EU_URL=amqp://app:"+canary+"@b2", "MILLPOND_DESTINATIONS_EVENTS_URL=memory://", "MILLPOND_DESTINATIONS_EVENTS_TOPIC=all")
	require.NoError(t, err)
	require.Equal(t, map[string]router.DestinationConfig{
		"kafka-eu": {
			URL:         router.NewURL("amqp://app:" + canary + "@b2"),
			Destination: middleware.Destination{Topic: "shipments", Topics: []string{"shipments", "returns"}, MaxBytes: 1000},
		},
		"events": {URL: router.NewURL("memory://"), Destination: middleware.Destination{Topic: "all"}},
	}, c.Destinations)
	require.Contains(t, c.String(), `destinations:
  events:
    url: memory://
    topic: all
  kafka-eu:
    url: "amqp://…@b2"
    topic: shipments
    topics: [shipments, returns]
    max_bytes: 1000
`)
	require.Equal(t, "MILLPOND_DESTINATIONS_KAFKA_EU_URL", c.Origin("destinations.kafka-eu.url"))
	require.Equal(t, "millpond.yaml:7", c.Origin("destinations.kafka-eu.topic"))
	var warned []string
	for _, w := range c.Warnings() {
		warned = append(warned, w.String())
	}
	require.Contains(t, strings.Join(warned, "\n"), `MILLPOND_DESTINATIONS_KAFKA_EU_URL: destinations.kafka-eu.url is amqp://…@b2, which overrides the amqp://…@b1 of millpond.yaml:6`)
	require.NotContains(t, fmt.Sprintf("%+v %v %s", c, c.Destinations, warned), canary)

	c, err = router.ReadConfig(nil, "", []string{
		"MILLPOND_SERVICE=a", "MILLPOND_BROKER_URL=memory://", "MILLPOND_STORE_URL=sqlite://a.db",
		"MILLPOND_DESTINATIONS_KAFKA_EU_URL=memory://", "MILLPOND_DESTINATIONS_KAFKA_EU_TOPICS=a, b",
	})
	require.NoError(t, err)
	require.Equal(t, map[string]router.DestinationConfig{
		"kafka-eu": {URL: router.NewURL("memory://"), Destination: middleware.Destination{Topics: []string{"a", "b"}}},
	}, c.Destinations, "without a file variables name destinations")
}

// All that is wrong with destinations is said at once, with the fix, and without secrets.
func TestMistakesInDestinations(t *testing.T) {
	_, err := read(valid+`destinations:
  events:
  "": {url: 'memory://'}
  a/b: {url: 'memory://'}
  store: {url: 'sqlite://x.db'}
  two-names: {url: 'memory://'}
  two.names: {url: 'memory://u:`+canary+`@h'}
  topics: {url: 'memory://', topic: c, topics: [a, b], max_bytes: 0, topik: x}
`, "MILLPOND_DESTINATIONS_EVENT_URL=memory://", "MILLPOND_DESTINATIONS_TOPICS_TOPIK=a", "MILLPOND_DESTINATIONS=x")
	require.Error(t, err)
	require.NotContains(t, err.Error(), canary)
	for _, line := range []string{
		`millpond.yaml:5: destinations.events.url is missing: write the URL of its broker, such as kafka://host:9092, or set MILLPOND_DESTINATIONS_EVENTS_URL`,
		`millpond.yaml:6: destinations. has no name: the destination without one is the service's own broker, which needs no section`,
		`millpond.yaml:7: destinations.a/b has a name that cannot be one: use up to 200 letters, digits, '.', '-' and '_'`,
		`millpond.yaml:8: destinations.store.url is "sqlite://x.db": sqlite is one of the stores: write one of the brokers, such as memory:// or kafka://host:9092`,
		`millpond.yaml:10: destinations.two.names has the same variables as destinations.two-names: give one of them another name`,
		`millpond.yaml:10: destinations.two.names.url is wrong: memory: the URL names a user, host, path or fragment`,
		`millpond.yaml:11: destinations.topics.topic is "c", which is not one of destinations.topics.topics: add it there`,
		`millpond.yaml:11: destinations.topics.max_bytes is "0": use a positive number`,
		`millpond.yaml:11: destinations.topics.topik is not a field: did you mean destinations.topics.topic?`,
		`MILLPOND_DESTINATIONS_EVENT_URL: there is no such variable: did you mean MILLPOND_DESTINATIONS_EVENTS_URL?`,
		`MILLPOND_DESTINATIONS_TOPICS_TOPIK: there is no such variable: did you mean MILLPOND_DESTINATIONS_TOPICS_TOPIC?`,
		`MILLPOND_DESTINATIONS: is a section and no field: there are MILLPOND_DESTINATIONS_`,
	} {
		require.ErrorContains(t, err, line)
	}
	_, err = read(valid, "MILLPOND_DESTINATIONS_KAFKA_EU_URL=memory://")
	require.EqualError(t, err, "MILLPOND_DESTINATIONS_KAFKA_EU_URL: there is no such variable: the file names no destination: write destinations: {name: {}} into it")
}

// europe adds a broker of its own, which may be away, and a destination on it.
func (r *rig) europe(c *router.Config, away *atomic.Bool) *lasting {
	broker, err := memory.New(memory.Config{})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, broker.Close()) })
	eu := &lasting{Broker: broker}
	c.Program.Brokers.Handle("europe", func(context.Context, *url.URL) (brokers.Broker, error) {
		if away.Load() {
			return nil, fmt.Errorf("%w: %s", brokers.ErrUnavailable, canary)
		}
		return eu, nil
	})
	c.Destinations = map[string]router.DestinationConfig{"eu": {
		URL:         router.NewURL("europe://app:" + canary + "@h"),
		Destination: middleware.Destination{Topic: "mirrored", Topics: []string{"mirrored", "mailed"}},
	}}
	return eu
}

// received are the ids of a topic's messages, once there are so many.
func (r *rig) received(broker brokers.Broker, topic string, n int) (ids []string) {
	sub, err := broker.Subscriber(brokers.SubscriberConfig{Group: "test"})
	require.NoError(r.t, err)
	defer func() { require.NoError(r.t, sub.Close()) }()
	messages, err := sub.Subscribe(r.t.Context(), topic)
	require.NoError(r.t, err)
	for len(ids) < n {
		select {
		case msg := <-messages:
			ids = append(ids, msg.UUID)
			msg.Ack()
		case <-time.After(30 * time.Second):
			require.Fail(r.t, "too few messages", "%v\n%s", ids, r.log)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestHandlersPublishToBrokersOfTheConfiguration(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		c := r.config()
		c.Relay.On = true
		eu := r.europe(&c, new(atomic.Bool))
		svc := r.service(c)
		svc.HandleAndPublish("mirror", "orders", "eu", "", func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{msg.Copy()}, nil
		})
		events := outbox.Publisher("eu")
		refused := make(chan error, 10)
		svc.Handle("mail", "orders", func(msg *message.Message) error {
			said := message.NewMessageWithContext(msg.Context(), "mail of "+msg.UUID, nil)
			refused <- events.Publish("elsewhere", said)
			return errors.Join(events.Publish("mailed", said), events.Publish("", message.NewMessageWithContext(msg.Context(), "of "+msg.UUID, nil)))
		})
		stop := r.run(svc)
		r.publish("orders", "1")
		r.publish("orders", "2")
		require.Equal(t, []string{"1", "2", "of 1", "of 2"}, r.received(eu, "mirrored", 4))
		require.Equal(t, []string{"mail of 1", "mail of 2"}, r.received(eu, "mailed", 2))
		err := <-refused
		require.ErrorIs(t, err, middleware.ErrUnknownTopic)
		require.ErrorContains(t, err, `"elsewhere" is not one of Destinations["eu"].Topics`)
		require.NoError(t, stop())
	})
}

// A destination that is away when the service starts, or that nobody has any more, lets its
// messages wait, and no others.
func TestMessagesWaitForADestination(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		var away atomic.Bool
		away.Store(true)
		there, gone := r.config(), r.config()
		there.Relay.On, gone.Relay.On = true, true
		eu := r.europe(&there, &away)
		gone.HTTP.Listen = "127.0.0.1:0"
		mirror := func(msg *message.Message) ([]*message.Message, error) { return []*message.Message{msg.Copy()}, nil }
		handled := func(svc *router.Service) func() error {
			svc.HandleAndPublish("own", "orders", "", "shipments", mirror)
			svc.Handle("shipping", "shipments", func(msg *message.Message) error { return write(msg, msg.UUID) })
			return r.run(svc)
		}

		svc := r.service(there)
		var fails atomic.Bool
		svc.HandleAndPublish("mirror", "orders", "eu", "", func(msg *message.Message) ([]*message.Message, error) {
			if fails.Load() {
				return nil, errors.New("not now")
			}
			return mirror(msg)
		})
		stop := handled(svc)
		r.publish("orders", "1")
		r.reach("1")
		fails.Store(true)
		r.publish("orders", "parked")
		r.reach("1", "parked")
		require.NoError(t, stop())
		require.Contains(t, r.log.String(), "a destination is away; its messages wait")
		require.NotContains(t, r.log.String(), canary)

		svc = r.service(gone)
		stop = handled(svc)
		r.publish("orders", "2")
		r.reach("1", "2", "parked")
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			_, body := get(t, svc, "/readyz")
			assert.Contains(t, body, `some wait for destinations that this relay does not have: "eu"`)
		}, 30*time.Second, 10*time.Millisecond)
		require.Contains(t, r.log.String(), "outputs wait for a destination that this relay has no publisher for")
		require.NoError(t, stop())

		away.Store(false)
		svc = r.service(there)
		fails.Store(false)
		svc.HandleAndPublish("mirror", "orders", "eu", "", mirror)
		stop = handled(svc)
		require.Equal(t, []string{"1", "2", "parked"}, r.received(eu, "mirrored", 3))
		require.NoError(t, stop())
	})
}

// A message that is tried again when its destination is gone fails for good, and can be
// retried when that is there again.
func TestRetryToADestinationThatIsGone(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Relay.On = true
	r.europe(&c, new(atomic.Bool))
	svc := r.service(c)
	ran := make(chan struct{}, 100)
	svc.HandleAndPublish("mirror", "orders", "eu", "", func(*message.Message) ([]*message.Message, error) {
		ran <- struct{}{}
		return nil, errors.New("not now")
	})
	stop := r.run(svc)
	r.publish("orders", "1")
	await(t, ran)
	await(t, ran) // it is parked
	require.NoError(t, stop())

	c.Destinations = nil
	svc = r.service(c)
	svc.HandleAndPublish("mirror", "orders", "", "shipments", func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{msg.Copy()}, nil
	})
	stop = r.run(svc)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		v, err := svc.Store().(stores.Failures).Look(context.Background(), stores.Key{Consumer: stores.Consumer{Service: "shop", Handler: "mirror"}, ID: []byte("u:1")}, stores.Fingerprint{})
		assert.NoError(t, err)
		assert.Equal(t, stores.ClassOutputs, v.Failure.Class)
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, stop())
}

func TestDestinationsAreCheckedAtTheStart(t *testing.T) {
	r := newRig(t)
	said := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	c := r.config()
	r.europe(&c, new(atomic.Bool))
	c.Destinations["bare"] = router.DestinationConfig{}
	c.Relay.Publishers = map[string]message.Publisher{"bare": outbox.Publisher("eu")}
	c.Relay.On = true
	svc := r.service(c)
	svc.HandleAndPublish("a", "orders", "eu", "elsewhere", said)
	svc.HandleAndPublish("b", "orders", "bare", "", said)
	err := svc.Run(t.Context())
	require.ErrorContains(t, err, `handler "a" publishes to the topic "elsewhere", which is not one of destinations.eu.topics ["mirrored" "mailed"]: add it there`)
	require.ErrorContains(t, err, `handler "b": the topic that it publishes to is empty: name it, or destinations.bare.topic`)

	svc = r.service(c)
	svc.HandleAndPublish("b", "orders", "bare", "t", said)
	require.ErrorContains(t, svc.Run(t.Context()), `Publishers["bare"] is an outbox.Publisher, which writes into the outbox what the relay is to publish: give the publisher of a broker`)

	c.Relay.Publishers["eu"] = outbox.Publisher("")
	_, err = router.New(t.Context(), c)
	require.ErrorContains(t, err, `destinations.eu.url is europe://…@h, and Relay.Publishers of the program has this destination, too: remove one`)
	require.NotContains(t, err.Error(), canary)

	c = r.config()
	c.Destinations = map[string]router.DestinationConfig{"eu": {URL: router.NewURL("amqp://app:" + canary + "@h")}}
	require.NotNil(t, r.service(c), "who runs no relay needs no adapter")
	c.Relay.On = true
	_, err = router.New(t.Context(), c)
	require.ErrorContains(t, err, "destinations.eu.url amqp://…@h: the program does not import the adapter of amqp")
	require.NotContains(t, err.Error(), canary)
}
