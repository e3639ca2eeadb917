package router_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
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
		c.DeadLetters.Topic = "dead"
		c.Handlers = map[string]router.HandlerConfig{"strict": {Retry: router.RetryConfig{MaxAttempts: 2}}}
		var hooked atomic.Int32
		c.Program.Inbox = func(in *middleware.InboxConfig) {
			in.Retry.Classify = func(error) stores.Class { hooked.Add(1); return "" }
		}
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
		require.Equal(t, int32(3), hooked.Load())
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
	require.EqualError(t, <-ended, `router: a subscriber has ended: handler "a" gets no more messages`)
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
	require.ErrorContains(t, err, "router: the router has ended: cannot subscribe topic orders: kafka: the topic does not exist")
	require.NotContains(t, err.Error(), "s3cret")
	require.Less(t, time.Since(begun), 10*time.Second, "it waits for nobody")
}

func TestAdapterThatIsNotImported(t *testing.T) {
	c := router.Config{Service: "a", Broker: router.BrokerConfig{URL: "kafka://s3cret:s3cret@b:9092"}, Store: router.StoreConfig{URL: "postgres://s3cret@db/db"}}
	c.Program.Brokers, c.Program.Stores = new(brokers.Mux), new(stores.Mux)
	c.Program.Brokers.Handle("lasting", nil)
	_, err := router.New(t.Context(), c)
	require.EqualError(t, err, `router: broker.url kafka://…@b:9092: the program does not import the adapter of kafka: add import _ "github.com/millpond-go/millpond/brokers/kafka"
router: store.url postgres://…@db/db: the program does not import the adapter of postgres: add import _ "github.com/millpond-go/millpond/stores/postgres"`)
	c.Broker.URL = "carrier-pigeon://x"
	_, err = router.New(t.Context(), c)
	require.ErrorContains(t, err, `router: broker.url carrier-pigeon://x: no adapter opens "carrier-pigeon": import its package (imported: lasting)`)
}

func TestServersThatCannotBeReached(t *testing.T) {
	c := router.Config{
		Service: "a", Broker: router.BrokerConfig{URL: "memory://?capacitee=1"},
		Store: router.StoreConfig{URL: "postgres://app:s3cret@127.0.0.1:1/db?connect_timeout=2"},
	}
	_, err := router.New(t.Context(), c)
	require.ErrorContains(t, err, `router: broker.url memory://?capacitee=1: memory: parameter "capacitee" is not known`)
	require.ErrorContains(t, err, `router: store.url postgres://…@127.0.0.1:1/db?connect_timeout=2: postgres: cannot connect`)
	require.ErrorIs(t, err, stores.ErrUnavailable)
	require.NotContains(t, err.Error(), "s3cret")
}

func TestMissingTables(t *testing.T) {
	r := newRig(t)
	c := r.config()
	c.Store = router.StoreConfig{URL: router.URL(r.store + "?migrate=never")}
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

// What does not fit together is said before the first message, with its numbers.
func TestWhatDoesNotFit(t *testing.T) {
	handle := func(*message.Message) error { return nil }
	onPostgres := func(c *router.Config) { // a URL of PostgreSQL that is opened as SQLite
		sqliteURL := string(c.Store.URL)
		c.Store.URL = "postgres://app:s3cret@db/app?pool_max_conns=9"
		c.Program.Stores = new(stores.Mux)
		c.Program.Stores.Handle("postgres", func(ctx context.Context, _ *url.URL) (stores.Store, error) {
			return stores.Open(ctx, sqliteURL)
		})
	}
	unknownLimit := brokers.Capabilities{System: "pigeons"}
	for name, test := range map[string]struct {
		change  func(c *router.Config)
		broker  func(b *lasting)
		service func(svc *router.Service)
		says    []string // each a line; none: it fits
	}{
		"everything": {},
		"no handlers": {
			service: func(*router.Service) {},
			says:    []string{"router: there are no handlers: call Service.Handle before Run"},
		},
		"handlers": {
			service: func(svc *router.Service) {
				svc.Handle("a", "", handle)
				svc.Handle("a", "orders", handle)
				svc.Handle("b", "orders", nil)
				svc.Handle("", "orders", handle)
			},
			says: []string{
				`router: handler "a": its topic is empty: name the topic that it reads`,
				`router: handler "a": there are two of this name: give each its own`,
				`router: handler "b": its function is nil`,
				`router: handler "": its name is no name of a consumer: use a short one without control characters`,
			},
		},
		"a helper of another store": {
			service: func(svc *router.Service) {
				svc.Handle("a", "orders", postgres.Handler(func(context.Context, pgx.Tx, *message.Message) error { return nil }))
				svc.Handle("b", "orders", sqlite.Handler(func(context.Context, *sql.Tx, *message.Message) error { return nil }))
			},
			says: []string{`router: handler "a": it is made by postgres.Handler, and the store is sqlite: use sqlite.Handler, or another store.url`},
		},
		"InstantAck": {
			service: func(svc *router.Service) {
				svc.Use(watermillmiddleware.InstantAck, watermillmiddleware.Recoverer)
				svc.Handle("a", "orders", handle)
			},
			says: []string{"router: Use(InstantAck) acks messages before their effects are committed, and loses those that fail: remove it"},
		},
		"Watermill's handlers": {
			service: func(svc *router.Service) {
				svc.Watermill().AddConsumerHandler("a", "orders", nil, handle)
				svc.Handle("a", "orders", handle)
			},
			says: []string{`router: handler "a": Watermill's router has one of this name already: rename one of them`},
		},
		"handlers of the file": {
			change: func(c *router.Config) {
				c.Handlers = map[string]router.HandlerConfig{"stok": {}, "b": {RenamedFrom: "stock"}}
			},
			says: []string{
				`router: handlers.stok: the program has no such handler: did you mean stock?`,
				`router: handlers.b: the program has no such handler, it has stock: remove the section`,
				`router: handlers.b.renamed_from is "stock", which is a handler of this program: two handlers would share one consumer, and one would lose its messages`,
			},
		},
		"one group": {
			change: func(c *router.Config) {
				c.Handlers = map[string]router.HandlerConfig{"a": {Group: "g"}, "b": {Group: "g"}, "c": {Group: "g"}}
			},
			service: func(svc *router.Service) {
				svc.Handle("a", "orders", handle)
				svc.Handle("b", "orders", handle)
				svc.Handle("c", "payments", handle)
			},
			says: []string{`router: handlers "a" and "b" read topic "orders" in one group, "g", so that each would miss the other's messages: give them different groups`},
		},
		"the broker's deliveries": {
			change: func(c *router.Config) { c.Retry.Placement = "redelivered" },
			broker: func(b *lasting) {
				b.can = &brokers.Capabilities{DeliveryLimit: brokers.DeliveryLimit{Known: true, Max: 10}}
			},
			says: []string{`router: handler "stock": with placement redelivered its 10 attempts are as many deliveries, and the broker's limit is 10, after which a message is lost to the service: lower retry.max_attempts to 9, raise the limit, or let messages be parked`},
		},
		"enough deliveries": {
			change: func(c *router.Config) { c.Retry.Placement, c.Retry.MaxAttempts = "redelivered", 9 },
			broker: func(b *lasting) {
				b.can = &brokers.Capabilities{DeliveryLimit: brokers.DeliveryLimit{Known: true, Max: 10}}
			},
		},
		"deliveries without a limit": {
			change: func(c *router.Config) { c.Retry.Placement = "redelivered" },
			broker: func(b *lasting) {
				b.can = &brokers.Capabilities{DeliveryLimit: brokers.DeliveryLimit{Known: true}}
			},
		},
		"unknown deliveries": {
			change: func(c *router.Config) { c.Keep.Off = true },
			broker: func(b *lasting) { b.can = &unknownLimit },
			says:   []string{`router: handler "stock": with keep.off each attempt is a delivery, and the broker (pigeons) cannot tell after how many it drops a message: say it in broker.delivery_limit, or let messages be parked`},
		},
		"unknown deliveries that are declared": {
			change: func(c *router.Config) { c.Keep.Off, c.Broker.DeliveryLimit = true, 3 },
			broker: func(b *lasting) { b.can = &unknownLimit },
			says:   []string{`router: handler "stock": with keep.off its 10 attempts are as many deliveries, and broker.delivery_limit is 3, after which a message is lost to the service: lower retry.max_attempts to 2, raise the limit, or let messages be parked`},
		},
		"unknown deliveries that do not matter": {
			broker: func(b *lasting) { b.can = &unknownLimit },
		},
		"the broker's timer": {
			broker: func(b *lasting) { b.settleLimit = 40 * time.Second },
			says: []string{
				`router: handler "stock" may take 50s (inbox.claim_timeout 10s + handler_timeout 30s + commit_timeout 10s), and the broker takes a message back after 40s: lower them, or raise the broker's limit`,
			},
		},
		"the broker's timer and held messages": {
			broker: func(b *lasting) { b.settleLimit = 2 * time.Minute },
			says:   []string{`router: handler "stock": inbox.hold.limit is 5m0s, which with the 50s of one attempt is more than the 2m0s after which the broker takes a message back: lower it to 1m10s`},
		},
		"a codec for people": {
			change: func(c *router.Config) {
				c.Program.Inbox = func(in *middleware.InboxConfig) {
					in.Keep.Codec = &middleware.Codec{Name: "hidden", Encode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil }}
				}
			},
			broker: func(b *lasting) { b.can = &unknownLimit },
			says:   []string{`router: handler "stock": with a codec that cannot decode each attempt is a delivery, and the broker (pigeons) cannot tell after how many it drops a message: say it in broker.delivery_limit, or let messages be parked`},
		},
		"a longer timer": {
			broker: func(b *lasting) { b.settleLimit = 6 * time.Minute },
		},
		"a pool": {
			change: onPostgres,
			says:   []string{`router: store.url allows 9 connections (pool_max_conns), and 10 may be needed: 1 in flight + 8 retries of handler "stock" + 1: write pool_max_conns=10 into its parameters, or lower broker.in_flight or retry_worker.concurrency`},
		},
		"a pool without retries": {
			change: func(c *router.Config) { onPostgres(c); c.RetryWorker.Off, c.Broker.InFlight = true, 8 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if test.broker != nil {
				test.broker(r.broker)
			}
			c := r.config()
			if test.change != nil {
				test.change(&c)
			}
			svc := r.service(c)
			if test.service == nil {
				svc.Handle("stock", "orders", handle)
			} else {
				test.service(svc)
			}
			if len(test.says) == 0 {
				require.NoError(t, r.run(svc)())
				return
			}
			err := svc.Run(t.Context())
			require.Error(t, err)
			got := strings.Split(err.Error(), "\n")
			slices.Sort(got)
			slices.Sort(test.says)
			require.Equal(t, test.says, got)
		})
	}
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
