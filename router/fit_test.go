package router_test

import (
	"context"
	"database/sql"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// pooled is a store of nine connections.
type pooled struct{ stores.Store }

func (p pooled) Capabilities() stores.Capabilities {
	can := p.Store.Capabilities()
	can.Pool = stores.Pool{Max: 9, Setting: "max_conns", Raise: "max_conns=%d there"}
	return can
}

// What does not fit together is said before the first message, with its numbers.
func TestWhatDoesNotFit(t *testing.T) {
	handle := func(*message.Message) error { return nil }
	onPool := func(c *router.Config) {
		opened := c.Store.URL.Reveal()
		c.Store.URL = router.NewURL("pooled://")
		c.Program.Stores = new(stores.Mux)
		c.Program.Stores.Handle("pooled", func(ctx context.Context, _ *url.URL) (stores.Store, error) {
			store, err := stores.Open(ctx, opened)
			return pooled{store}, err
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
				`router: handler "a": two handlers have this name: give each its own`,
				`router: handler "b": its function is nil`,
				`router: handler "": its name cannot name a consumer: use a short one without control characters`,
			},
		},
		"a helper of another store": {
			service: func(svc *router.Service) {
				svc.Handle("a", "orders", postgres.Handler(func(context.Context, pgx.Tx, *message.Message) error { return nil }))
				svc.Handle("b", "orders", sqlite.Handler(func(context.Context, *sql.Tx, *message.Message) error { return nil }))
			},
			says: []string{`router: handler "a": it is made by postgres.Handler, and the store is of package stores/sqlite: use sqlite.Handler, or another store.url`},
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
			says: []string{`router: handler "a": Watermill's router has a handler of this name already: rename one of them`},
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
		"handlers of the code": {
			change: func(c *router.Config) {
				c.Inbox.Renamed = map[string]string{"stok": "inventory"}
				c.Inbox.RetryByHandler = map[string]middleware.RetryPolicy{"shipping": {MaxAttempts: 2}, "stock": {}}
			},
			says: []string{
				`router: Inbox.Renamed["stok"]: the program has no such handler: did you mean stock?`,
				`router: Inbox.RetryByHandler["shipping"]: the program has no such handler, it has stock: remove it`,
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
			change: func(c *router.Config) { c.Inbox.Retry.Placement = stores.PlacementRedelivered },
			broker: func(b *lasting) {
				b.can = &brokers.Capabilities{DeliveryLimit: brokers.DeliveryLimit{Known: true, Max: 10}}
			},
			says: []string{`router: handler "stock": with placement redelivered its 10 attempts are as many deliveries, and the broker's limit is 10, after which a message is lost to the service: lower retry.max_attempts to 9, raise the limit, or let messages be parked`},
		},
		"enough deliveries": {
			change: func(c *router.Config) {
				c.Inbox.Retry.Placement, c.Inbox.Retry.MaxAttempts = stores.PlacementRedelivered, 9
			},
			broker: func(b *lasting) {
				b.can = &brokers.Capabilities{DeliveryLimit: brokers.DeliveryLimit{Known: true, Max: 10}}
			},
		},
		"deliveries without a limit": {
			change: func(c *router.Config) { c.Inbox.Retry.Placement = stores.PlacementRedelivered },
			broker: func(b *lasting) {
				b.can = &brokers.Capabilities{DeliveryLimit: brokers.DeliveryLimit{Known: true}}
			},
		},
		"unknown deliveries": {
			change: func(c *router.Config) { c.Inbox.Keep.Off = true },
			broker: func(b *lasting) { b.can = &unknownLimit },
			says:   []string{`router: handler "stock": with keep.off each attempt is a delivery, and the broker (pigeons) does not tell after how many deliveries it drops a message: set broker.delivery_limit, or let messages be parked`},
		},
		"unknown deliveries that are declared": {
			change: func(c *router.Config) { c.Inbox.Keep.Off, c.Broker.DeliveryLimit = true, 3 },
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
		"the broker's timer and a lease": {
			change: func(c *router.Config) {
				c.Handlers = map[string]router.HandlerConfig{"stock": {Lease: router.LeaseConfig{On: true}}}
			},
			broker: func(b *lasting) { b.settleLimit = time.Minute },
			says: []string{
				`router: handler "stock" may take 1m20s (inbox.claim_timeout 10s + handler_timeout 30s + commit_timeout 10s + handlers.stock.lease.ttl 30s), and the broker takes a message back after 1m0s: lower them, or raise the broker's limit`,
			},
		},
		"the broker's timer and a batch": { // middleware/internal/batch holds that it takes no longer
			change: func(c *router.Config) {
				c.Handlers = map[string]router.HandlerConfig{"stock": {InFlight: 64, Batch: router.BatchConfig{On: true}}}
			},
			broker: func(b *lasting) { b.settleLimit = time.Minute },
			says: []string{
				`router: handler "stock" may take 2m3s (twice inbox.claim_timeout 10s + handler_timeout 30s + commit_timeout 10s + commit_timeout 10s + handlers.stock.batch.time 200ms × (in_flight 64 + 1)), and the broker takes a message back after 1m0s: lower them, or raise the broker's limit`,
			},
		},
		"RabbitMQ's timer and a batch": {
			change: func(c *router.Config) {
				c.Handlers = map[string]router.HandlerConfig{"stock": {InFlight: 256, Batch: router.BatchConfig{On: true}}}
			},
			broker: func(b *lasting) { b.settleLimit = 30 * time.Minute },
		},
		"the broker's timer and held messages": {
			broker: func(b *lasting) { b.settleLimit = 2 * time.Minute },
			says:   []string{`router: handler "stock": inbox.hold.limit is 5m0s, which with the 50s of one attempt is more than the 2m0s after which the broker takes a message back: lower it to 1m10s`},
		},
		"a codec for people": {
			change: func(c *router.Config) {
				c.Inbox.Keep.Codec = &middleware.Codec{Name: "hidden", Encode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil }}
			},
			broker: func(b *lasting) { b.can = &unknownLimit },
			says:   []string{`router: handler "stock": with a codec that cannot decode each attempt is a delivery, and the broker (pigeons) does not tell after how many deliveries it drops a message: set broker.delivery_limit, or let messages be parked`},
		},
		"a longer timer": {
			broker: func(b *lasting) { b.settleLimit = 6 * time.Minute },
		},
		"a window within the broker's horizon": {
			change: func(c *router.Config) { c.Retention.Window, c.Retention.Failed = 168*time.Hour, 240*time.Hour },
			broker: func(b *lasting) {
				b.can = &brokers.Capabilities{ReplayHorizon: brokers.ReplayHorizon{Known: true, Max: 168 * time.Hour}}
			},
			says: []string{`router: handler "stock": completed messages are kept for 168h0m0s, and the broker keeps messages for 168h0m0s, so that offsets set back that far would run what was purged again: raise retention.window above 168h0m0s, or have the broker tell when it took a message (see docs/retention.md)`},
		},
		"a window of failed messages alone": {
			change: func(c *router.Config) {
				c.Retention.Failed, c.Retention.Discarded, c.Broker.ReplayHorizon = 200*time.Hour, 100*time.Hour, 168*time.Hour
			},
			broker: func(b *lasting) { b.can = &brokers.Capabilities{} },
			says:   []string{`router: handler "stock": discarded messages are kept for 100h0m0s, and broker.replay_horizon is 168h0m0s, so that offsets set back that far would run what was purged again: raise retention.discarded above 168h0m0s, or have the broker tell when it took a message (see docs/retention.md)`},
		},
		"windows beyond the broker's horizon": {
			change: func(c *router.Config) { c.Retention.Window, c.Broker.ReplayHorizon = 169*time.Hour, 168*time.Hour },
			broker: func(b *lasting) { b.can = &brokers.Capabilities{} },
		},
		"a pool": {
			change: onPool,
			says:   []string{`router: store.url allows 9 connections (max_conns), and 10 may be needed: 1 in flight + 8 retries of handler "stock" + 1: write max_conns=10 there, or lower broker.in_flight or retry_worker.concurrency`},
		},
		"a pool without retries": {
			change: func(c *router.Config) { onPool(c); c.RetryWorker.Off, c.Broker.InFlight = true, 8 },
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

// Settings that need a key of each message are warned of where there is none.
func TestKeysThatTheBrokerDoesNotHave(t *testing.T) {
	for name, test := range map[string]struct {
		can    brokers.Capabilities
		change func(c *router.Config)
		says   []string
	}{
		"everywhere": {
			brokers.Capabilities{System: "rabbitmq"},
			func(c *router.Config) {
				c.Inbox.Keys = keys.First(keys.UUID()).Then(keys.BrokerKey())
				c.Inbox.Retry.Order = "key"
			},
			[]string{
				"inbox.keys is [uuid, broker_key], and messages of this broker have no keys: take another, such as metadata:<field>",
				"retry.order is key, and messages of this broker have no keys: take metadata:<field>",
			},
		},
		"of one handler": {
			brokers.Capabilities{System: "memory"},
			func(c *router.Config) {
				c.Handlers = map[string]router.HandlerConfig{"stock": {Retry: middleware.RetryPolicy{Order: "key"}}}
			},
			[]string{"handlers.stock.retry.order is key, and messages of this broker have no keys, unless its URL has key_metadata: take metadata:<field>"},
		},
		"there are keys": {
			brokers.Capabilities{System: "kafka", Key: true},
			func(c *router.Config) { c.Inbox.Keys, c.Inbox.Retry.Order = keys.First(keys.BrokerKey()), "key" },
			nil,
		},
		"no native ids": {
			brokers.Capabilities{System: "kafka", Coordinates: true, Key: true},
			func(c *router.Config) { c.Inbox.Keys = keys.First(keys.Native()) },
			[]string{"inbox.keys is [native], and messages of this broker have no native ids: take another, such as metadata:<field>"},
		},
		"native ids of some": {
			brokers.Capabilities{System: "nats", Coordinates: true},
			func(c *router.Config) { c.Inbox.Keys = keys.First(keys.Native()).Then(keys.UUID()) },
			[]string{"have no native ids, unless their producers set Nats-Msg-Id: "},
		},
		"no coordinates": {
			brokers.Capabilities{System: "rabbitmq", NativeID: true},
			func(c *router.Config) { c.Inbox.Keys = keys.First(keys.Coordinates()) },
			[]string{"inbox.keys is [coordinates], and messages of this broker have no coordinates: take another, such as metadata:<field>"},
		},
		"there are native ids and coordinates": {
			brokers.Capabilities{System: "memory", NativeID: true, Coordinates: true},
			func(c *router.Config) { c.Inbox.Keys = keys.First(keys.Native()).Then(keys.Coordinates()) },
			nil,
		},
		"no keys are needed": {brokers.Capabilities{}, func(c *router.Config) { c.Inbox.Retry.Order = "metadata:customer" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.broker.can = &test.can
			c := r.config()
			test.change(&c)
			svc := r.service(c)
			svc.Handle("stock", "orders", func(*message.Message) error { return nil })
			require.NoError(t, r.run(svc)())
			said := saying(r.log.String(), "messages of this broker have no ")
			require.Len(t, said, len(test.says))
			for i, says := range test.says {
				require.Contains(t, said[i], "level=WARN")
				require.Contains(t, said[i], says)
			}
		})
	}
}
