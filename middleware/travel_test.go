package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// What is published with the context of another message: Watermill's gochannel keeps it,
// and cqrs copies it.
func newPreserving() *gochannel.GoChannel {
	return gochannel.NewGoChannel(gochannel.Config{PreserveContext: true, Persistent: true}, watermill.NopLogger{})
}

// route runs handlers, by topic, behind an inbox each until the test ends.
func route(t *testing.T, pubsub message.Subscriber, handlers map[string]message.NoPublishHandlerFunc, inboxes map[string]*middleware.Inbox) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	for topic, h := range handlers {
		router.AddConsumerHandler(topic, topic, pubsub, h).AddMiddleware(inboxes[topic].Middleware)
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		if err := errors.Join(router.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
}

// results remembers how deliveries ended, and lets a test wait for one.
type results struct {
	mu    sync.Mutex
	all   []middleware.Result
	ended chan middleware.Result
}

func newResults() *results { return &results{ended: make(chan middleware.Result, 100)} }

func (r *results) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, d.Result)
	r.ended <- d.Result
}

func (r *results) next(t *testing.T) middleware.Result {
	t.Helper()
	return receive(t, r.ended)
}

func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing happened for 30 s")
	}
	return got
}

// holds tells a test why a delivery waits.
type holds chan error

func (h holds) Hold(_ context.Context, reason error, _ time.Duration) { h <- reason }

func TestMessagePublishedAgainByItsHandlerIsADeliveryOfItsOwn(t *testing.T) {
	t.Parallel()
	pubsub, ends, held := newPreserving(), newResults(), make(holds, 1000)
	again := make(chan struct{}, 100)
	in := newInbox(t, newLedger(), func(c *middleware.InboxConfig) {
		c.Handler, c.Hooks = "", []middleware.Hook{ends, held}
		c.Hold.MinPause = 10 * time.Millisecond
	})
	var begun atomic.Bool
	route(t, pubsub, map[string]message.NoPublishHandlerFunc{"orders": func(m *message.Message) error {
		if begun.Swap(true) {
			again <- struct{}{}
			return nil
		}
		if err := pubsub.Publish("orders", m); err != nil {
			return err
		}
		select { // the other one, while this one runs
		case reason := <-held:
			if !errors.Is(reason, middleware.ErrInFlight) {
				t.Errorf("the second delivery waits for %v", reason)
			}
		case <-again:
			t.Error("the second delivery ran inside the first")
		}
		return nil
	}}, map[string]*middleware.Inbox{"orders": in})
	if err := pubsub.Publish("orders", message.NewMessage("a", nil)); err != nil {
		t.Fatal(err)
	}
	got := []middleware.Result{ends.next(t), ends.next(t)}
	if want := []middleware.Result{middleware.ResultCompleted, middleware.ResultDuplicate}; !slices.Equal(got, want) || len(again) > 0 {
		t.Errorf("the deliveries ended as %v, want %v", got, want)
	}
}

// A retry worker's message says nothing about those that its handler publishes.
func TestMessagePublishedByARetriedHandlerIsClaimedUnderItsOwnID(t *testing.T) {
	t.Parallel()
	pubsub, store, ends := newPreserving(), newLedger(), newResults()
	in := newInbox(t, store, func(c *middleware.InboxConfig) {
		c.Handler, c.Hooks = "", []middleware.Hook{ends}
		c.Retry.Backoff.Min = time.Millisecond
	})
	mails, runs := make(chan string, 10), 0
	stock := func(m *message.Message) error {
		if runs++; runs == 1 {
			return errors.New("boom")
		}
		return pubsub.Publish("mails", message.NewMessageWithContext(m.Context(), "mail of "+m.UUID, nil))
	}
	route(t, pubsub, map[string]message.NoPublishHandlerFunc{
		"mails": func(m *message.Message) error { mails <- m.UUID; return nil },
	}, map[string]*middleware.Inbox{"mails": in})
	// As the router does for a handler that is called stock.
	named := newInbox(t, store, func(c *middleware.InboxConfig) { c.Handler = "stock" })
	if _, err := named.Middleware(handle(stock))(newMessage(t.Context(), "a")); err != nil {
		t.Fatal(err)
	}
	w, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{
		Handlers: map[string]message.HandlerFunc{"stock": handle(stock)}, PollInterval: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	if got := receive(t, mails); got != "mail of a" {
		t.Errorf("handled was %q", got)
	}
	for range 2 {
		if r := ends.next(t); r != middleware.ResultCompleted {
			t.Errorf("a delivery ended as %s", r)
		}
	}
	stop()
	if err := receive(t, stopped); err != nil {
		t.Error(err)
	}
	if store.row("mail of a").status != stores.StatusCompleted || store.row("a").status != stores.StatusCompleted {
		t.Error(store.story())
	}
}

// Nor about the copies of dead letters, which have consumers of their own.
func TestCopyOfADeadLetterIsADeliveryOfItsOwn(t *testing.T) {
	t.Parallel()
	pubsub, store, graves := newPreserving(), newLedger(), newLedger()
	buried := make(chan string, 10)
	route(t, pubsub, map[string]message.NoPublishHandlerFunc{
		"graves": func(m *message.Message) error { buried <- m.UUID; return nil },
	}, map[string]*middleware.Inbox{"graves": newInbox(t, graves, func(c *middleware.InboxConfig) { c.Handler = "" })})
	in := newInbox(t, store, func(c *middleware.InboxConfig) {
		c.DeadLetters = middleware.DeadLetterConfig{Publisher: pubsub, Topic: "graves"}
		c.Retry.MaxAttempts, c.Retry.Backoff.Min = 2, time.Millisecond
	})
	if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a")); err != nil {
		t.Fatal(err)
	}
	w, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{
		Handlers: map[string]message.HandlerFunc{"stock": handle(fail)}, PollInterval: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	if got := receive(t, buried); got != "a" {
		t.Errorf("buried was %q", got)
	}
	stop()
	if err := receive(t, stopped); err != nil {
		t.Error(err)
	}
	if r := store.row("a"); r.status != stores.StatusFailed {
		t.Errorf("%+v\n%s", r, store.story())
	}
}

// A copy that a middleware hands on is a delivery of its own. What a worker runs is then
// not run, and somebody has to know why it is due again and again.
func TestCopyOfARetriedMessageIsNotRunAndSaidSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		store, runs := newLedger(), 0
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Logger, c.Retry.Backoff.Min = slog.New(slog.NewTextHandler(&out, nil)), time.Millisecond
		})
		if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a")); err != nil {
			t.Fatal(err)
		}
		copying := func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) { return next(m.CopyWithContext()) }
		}
		work(t, in, func(*message.Message) error { runs++; return nil }, func() {
			<-time.After(time.Minute)
		}, func(c *middleware.RetryWorkerConfig) { c.Middlewares = []message.HandlerMiddleware{copying} })
		if runs != 0 || store.row("a").status != stores.StatusPending || !strings.Contains(out.String(), "or handed on a copy") {
			t.Errorf("%d runs, %+v\n%s", runs, store.row("a"), out.String())
		}
	})
}

// One that replaces the context changes nothing of that.
func TestRetriedMessageIsKnownWithoutItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store)
		if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a")); err != nil {
			t.Fatal(err)
		}
		replacing := func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				m.SetContext(context.Background())
				return next(m)
			}
		}
		w := work(t, in, succeed, func() {
			waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted })
		}, func(c *middleware.RetryWorkerConfig) { c.Middlewares = []message.HandlerMiddleware{replacing} })
		if s := w.Stats(); s.Completed != 1 {
			t.Errorf("%+v", s)
		}
	})
}
