package router_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
	_ "github.com/millpond-go/millpond/stores/postgres/sqldb"
	"github.com/millpond-go/millpond/stores/sqlite"
)

func TestTwoHandlersOfOneTopicEachGetEveryMessage(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		c := r.config()
		c.Broker.InFlight = 4
		svc := r.service(c)
		var want []string
		for _, name := range []string{"a", "b"} {
			svc.Handle(name, "orders", func(msg *message.Message) error { return write(msg, name+msg.UUID) })
			for i := range 10 {
				want = append(want, fmt.Sprintf("%s%d", name, i))
			}
		}
		stop := r.run(svc)
		for i := range 30 { // each three times
			r.publish("orders", fmt.Sprint(i%10))
		}
		r.reach(want...)
		require.NoError(t, stop())
		require.Equal(t, want, r.effects())
	})
}

func TestFailedMessagesAreTriedAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, r *rig) {
		c := r.config()
		c.Inbox.DeadLetters.Topic = "dead"
		c.Handlers = map[string]router.HandlerConfig{"strict": {Retry: middleware.RetryPolicy{MaxAttempts: 2}}}
		var hooked atomic.Int32
		c.Inbox.Retry.Classify = func(error) stores.Class { hooked.Add(1); return "" }
		svc := r.service(c)
		var around, attempts atomic.Int32
		svc.Use(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				around.Add(1)
				return h(msg)
			}
		})
		svc.Handle("patient", "orders", func(msg *message.Message) error {
			if attempts.Add(1) < 4 {
				return errors.New("not yet")
			}
			return write(msg, "at last")
		})
		svc.Handle("strict", "strictly", func(*message.Message) error { return errors.New("never") })
		svc.Handle("undertaker", "dead", func(msg *message.Message) error {
			return write(msg, "dead "+msg.Metadata.Get(middleware.MetadataAttempts))
		})
		stop := r.run(svc)
		r.publish("orders", "1")
		r.publish("strictly", "2")
		r.reach("at last", "dead 2")
		require.NoError(t, stop())
		require.Equal(t, int32(4), attempts.Load())
		require.Equal(t, int32(4+2+1), around.Load(), "Use is for first and later attempts")
		require.Equal(t, int32(5), hooked.Load(), "of handlers with a policy of their own, too")
	})
}

// A handler added to Watermill's router is run and stopped with the others, without the
// inbox; what is added to that router as a middleware is around everything.
func TestWatermillForEverythingElse(t *testing.T) {
	r := newRig(t)
	svc := r.service(r.config())
	svc.Handle("stock", "orders", func(msg *message.Message) error { return write(msg, msg.Metadata.Get("by")) })
	plain := make(chan struct{})
	subscriber, err := svc.Broker().Subscriber(brokers.SubscriberConfig{Group: "plain"})
	require.NoError(t, err)
	svc.Watermill().AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			msg.Metadata.Set("by", "watermill")
			return h(msg)
		}
	})
	svc.Watermill().AddConsumerHandler("plain", "orders", subscriber, func(msg *message.Message) error {
		if _, ok := sqlite.TxFromContext(msg.Context()); ok || msg.Metadata.Get("by") != "watermill" {
			return errors.New("it is behind the inbox, or not behind the middleware")
		}
		close(plain)
		return nil
	})
	stop := r.run(svc)
	r.publish("orders", "1")
	r.reach("watermill")
	await(t, plain)
	require.NoError(t, stop())
}

func TestServiceEndsWithASubscriber(t *testing.T) {
	r := newRig(t)
	closing := &closingBroker{lasting: r.broker}
	c := r.config()
	c.Program.Brokers = new(brokers.Mux)
	c.Program.Brokers.Handle("lasting", func(context.Context, *url.URL) (brokers.Broker, error) { return closing, nil })
	svc := r.service(c)
	svc.Handle("a", "orders", func(msg *message.Message) error { return write(msg, "a") })
	svc.Handle("b", "orders", func(msg *message.Message) error { return write(msg, "b") })
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(t.Context()) }()
	await(t, svc.Watermill().Running())
	require.NoError(t, closing.subscribers[0].Close())
	select {
	case err := <-ended:
		require.EqualError(t, err, `router: a subscriber ended: handler "a" gets no more messages`)
	case <-time.After(30 * time.Second):
		require.Fail(t, "the service goes on with half of its handlers")
	}
	require.ErrorContains(t, svc.Run(t.Context()), "was called twice")
	require.Panics(t, func() { svc.Handle("c", "orders", nil) })
	require.Panics(t, func() { svc.Use() })
}

// closingBroker remembers its subscribers.
type closingBroker struct {
	*lasting

	subscribers []message.Subscriber
	refuse      bool
}

func (b *closingBroker) Subscriber(c brokers.SubscriberConfig) (message.Subscriber, error) {
	s, err := b.lasting.Subscriber(c)
	if b.refuse {
		return refusing{s}, err
	}
	b.subscribers = append(b.subscribers, s)
	return s, err
}

// refusing is a subscriber whose topic does not exist.
type refusing struct{ message.Subscriber }

func (refusing) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return nil, errors.New("kafka: the topic does not exist at kafka://app:s3cret@here/?tls=true")
}

func TestRefusedSubscription(t *testing.T) {
	r := newRig(t)
	broker := &closingBroker{lasting: r.broker, refuse: true}
	c := r.config()
	c.Program.Brokers = new(brokers.Mux)
	c.Program.Brokers.Handle("lasting", func(context.Context, *url.URL) (brokers.Broker, error) { return broker, nil })
	svc := r.service(c)
	svc.Handle("a", "orders", func(*message.Message) error { return nil })
	begun := time.Now()
	err := svc.Run(t.Context())
	require.ErrorContains(t, err, "router: the router ended: cannot subscribe topic orders: kafka: the topic does not exist")
	require.NotContains(t, err.Error(), "s3cret")
	require.Less(t, time.Since(begun), 20*time.Second, "it waits for nobody")
}

func TestAdapterThatIsNotImported(t *testing.T) {
	c := router.Config{Service: "a", Broker: router.BrokerConfig{URL: router.NewURL("kafka://s3cret:s3cret@b:9092")}, Store: router.StoreConfig{URL: router.NewURL("postgres://s3cret@db/db")}}
	c.Program.Brokers, c.Program.Stores = new(brokers.Mux), new(stores.Mux)
	c.Program.Brokers.Handle("lasting", nil)
	c.Telemetry.On = true
	_, err := router.New(t.Context(), c)
	require.EqualError(t, err, `router: broker.url kafka://…@b:9092: the program does not import the adapter of kafka: add import _ "github.com/millpond-go/millpond/brokers/kafka"
router: store.url postgres://…@db/db: the program does not import the adapter of postgres: add import _ "github.com/millpond-go/millpond/stores/postgres"
router: telemetry.on is true, and the program has no telemetry: add import _ "github.com/millpond-go/millpond/router/telemetry"`)
	c.Broker.URL = router.NewURL("carrier-pigeon://x")
	_, err = router.New(t.Context(), c)
	require.ErrorContains(t, err, `router: broker.url carrier-pigeon://x: no adapter opens "carrier-pigeon": import its package (imported: lasting)`)
}

func TestServersThatCannotBeReached(t *testing.T) {
	c := router.Config{
		Service: "a", Broker: router.BrokerConfig{URL: router.NewURL("down://")},
		Store: router.StoreConfig{URL: router.NewURL("postgres://app:s3cret@127.0.0.1:1/db?connect_timeout=2")},
	}
	c.Program.Brokers = new(brokers.Mux)
	c.Program.Brokers.Handle("down", func(context.Context, *url.URL) (brokers.Broker, error) { return nil, brokers.ErrUnavailable })
	_, err := router.New(t.Context(), c)
	require.ErrorContains(t, err, `router: broker.url down://: brokers: broker unavailable`)
	require.ErrorContains(t, err, `router: store.url postgres://…@127.0.0.1:1/db?connect_timeout=2: postgres: cannot connect`)
	require.ErrorIs(t, err, stores.ErrUnavailable)
	require.NotContains(t, err.Error(), "s3cret")
}

func TestMissingTables(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Store = router.StoreConfig{URL: router.NewURL(r.store + "?migrate=never")}
	svc, err := router.New(t.Context(), c)
	require.NoError(t, err)
	svc.Handle("a", "orders", func(*message.Message) error { return nil })
	err = svc.Run(t.Context())
	require.ErrorIs(t, err, stores.ErrNotMigrated)
	require.ErrorContains(t, err, "run millpond migrate up, or set store.migrate: true")
}

func TestTakenConsumerName(t *testing.T) {
	r := newRig(t)
	svc := r.service(r.config())
	svc.Handle("a", "orders", func(*message.Message) error { return nil })
	require.NoError(t, r.run(svc)())
	svc = r.service(r.config())
	svc.Handle("a", "payments", func(*message.Message) error { return nil })
	err := svc.Run(t.Context())
	require.ErrorIs(t, err, stores.ErrConsumerConflict)
	require.ErrorContains(t, err, `router: handler "a"`)
}

func TestStoppedBeforeItBegins(t *testing.T) {
	r := newRig(t)
	svc := r.service(r.config())
	svc.Handle("a", "orders", func(*message.Message) error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, svc.Run(ctx))
	require.ErrorContains(t, svc.Run(t.Context()), "was called twice")

	svc = r.service(r.config())
	require.NoError(t, svc.Close())
	require.ErrorContains(t, svc.Run(t.Context()), "was called after Close")
}

// saying returns the lines of a log that say something.
func saying(log, says string) (all []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, says) {
			all = append(all, line)
		}
	}
	return all
}

// The line about the stop says why, and names no handlers if none runs.
func TestStopIsExplained(t *testing.T) {
	r := newRig(t)
	svc := r.service(r.config())
	svc.Handle("stock", "orders", func(*message.Message) error { return nil })
	require.NoError(t, r.run(svc)())
	stops := saying(r.log.String(), "the service stops")
	require.Len(t, stops, 1)
	require.Contains(t, stops[0], "its context ended")
	require.NotContains(t, stops[0], "signal")
	require.NotContains(t, stops[0], "running=")
}

// A URL that does not say how many connections the store may open leaves it to the service.
func TestPoolHasRoomForTheHandlers(t *testing.T) {
	for _, scheme := range []string{"postgres", "postgres+sql"} {
		t.Run(scheme, func(t *testing.T) {
			r := newRig(t)
			r.store = strings.Replace(testenv.Postgres(t).NewDatabase(t), "postgres", scheme, 1)
			u, err := url.Parse(r.store)
			require.NoError(t, err)
			require.False(t, u.Query().Has("pool_max_conns"))
			svc, err := router.New(t.Context(), r.config())
			require.NoError(t, err)
			for _, name := range []string{"a", "b", "c"} {
				svc.Handle(name, "orders", func(*message.Message) error { return nil })
			}
			require.NoError(t, r.run(svc)())
			said := saying(r.log.String(), "size of the connection pool")
			require.Len(t, said, 1)
			require.Contains(t, said[0], "needed=28")
		})
	}
}

// The old name of a handler is known from the store. One that was never there is a new
// consumer's, and what it was meant to be is named.
func TestOldNameThatNeverWas(t *testing.T) {
	r := newRig(t)
	start := func(handler, from string) {
		c := r.config()
		if from != "" {
			c.Handlers = map[string]router.HandlerConfig{handler: {RenamedFrom: from}}
		}
		svc := r.service(c)
		svc.Handle(handler, "orders", func(*message.Message) error { return nil })
		require.NoError(t, r.run(svc)())
	}
	const warning = "renamed_from names a handler that was never registered"
	start("inventory", "")
	start("stock", "inventory")
	require.Empty(t, saying(r.log.String(), warning))
	start("stock", "inventroy")
	said := saying(r.log.String(), warning)
	require.Len(t, said, 1)
	for _, part := range []string{"level=WARN", "handler=stock", "renamed_from=inventroy", "consumer=shop/inventroy", "known=inventory", `"did you mean"=inventory`} {
		require.Contains(t, said[0], part)
	}
}
