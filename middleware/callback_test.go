package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// everyHook is called at everything that is observed.
type everyHook func(method string)

func (f everyHook) DeliveryStart(ctx context.Context, _ middleware.DeliveryStart) context.Context {
	f("DeliveryStart")
	return ctx
}

func (f everyHook) TraceParent(context.Context) stores.TraceParent {
	f("TraceParent")
	return stores.TraceParent{}
}
func (f everyHook) DeliveryEnd(context.Context, middleware.DeliveryEnd) { f("DeliveryEnd") }

func (f everyHook) ClaimStart(ctx context.Context, _ stores.Claim) context.Context {
	f("ClaimStart")
	return ctx
}
func (f everyHook) ClaimEnd(context.Context, stores.Verdict, error) { f("ClaimEnd") }

func (f everyHook) LookStart(ctx context.Context, _ stores.Key) context.Context {
	f("LookStart")
	return ctx
}
func (f everyHook) LookEnd(context.Context, stores.Verdict, error)           { f("LookEnd") }
func (f everyHook) HandlerEnd(context.Context, time.Duration, error)         { f("HandlerEnd") }
func (f everyHook) CommitStart(ctx context.Context) context.Context          { f("CommitStart"); return ctx }
func (f everyHook) CommitEnd(context.Context, error)                         { f("CommitEnd") }
func (f everyHook) Hold(context.Context, error, time.Duration)               { f("Hold") }
func (f everyHook) IntakePaused(error)                                       { f("IntakePaused") }
func (f everyHook) ServerChanged(error)                                      { f("ServerChanged") }
func (f everyHook) IntakeResumed(time.Duration)                              { f("IntakeResumed") }
func (f everyHook) RetrySkipped(stores.Consumer, middleware.SkipReason, int) { f("RetrySkipped") }

// A hook observes. Whichever of its methods panics, messages of every fate go the way that
// they would have gone without it, once.
func TestHookThatPanicsIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, method := range []string{
		"", "DeliveryStart", "TraceParent", "DeliveryEnd", "ClaimStart", "ClaimEnd", "LookStart", "LookEnd", "HandlerEnd",
		"CommitStart", "CommitEnd", "Hold", "IntakePaused", "IntakeResumed", "RetrySkipped",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				met := 0
				store := newLedger()
				in := newInbox(t, store, func(c *middleware.InboxConfig) {
					c.Handler, c.Retry.MaxAttempts = "", 2
					c.Logger = slog.New(slog.NewTextHandler(&log, nil))
					c.Hooks = []middleware.Hook{everyHook(func(m string) {
						if m == method {
							met++
							panic("hook")
						}
					})}
				})
				deliver := func(id string, suspect bool, h func(*message.Message) error) {
					ctx := withDelivery(inHandler(t, "stock"), brokers.Delivery{Suspect: suspect})
					if _, err := in.Middleware(handle(h))(newMessage(ctx, id)); err != nil {
						t.Errorf("%s: %v", id, err)
					}
				}
				ran := func(*message.Message) error { return nil }
				deliver("done", false, ran)
				deliver("done", false, ran)
				deliver("suspect", true, ran)
				store.fault = func(call string) error { // once
					store.fault = nil
					return stores.ErrUnavailable
				}
				deliver("held", false, ran)
				deliver("parked", false, fail)
				store.backlog = []stores.Backlog{{Consumer: stores.Consumer{Service: "inventory", Handler: "gone"}, Due: 1}}
				work(t, in, fail, func() { waitUntil(t, func() bool { return store.row("parked").status == stores.StatusFailed }) })
				for id, want := range map[string]stores.Status{
					"done": stores.StatusCompleted, "suspect": stores.StatusCompleted, "held": stores.StatusCompleted, "parked": stores.StatusFailed,
				} {
					if got := store.row(id).status; got != want {
						t.Errorf("%s is %v:\n%s", id, got, store.story())
					}
				}
				if a := store.row("parked").failure.Attempts; a != 2 {
					t.Errorf("%d attempts:\n%s", a, store.story())
				}
				if method != "" && (met == 0 || !strings.Contains(log.String(), "function=Hook."+method)) {
					t.Errorf("met %d times, and logged:\n%s", met, log.String())
				}
			})
		})
	}
}

type panickingLog struct{ slog.Handler }

func (panickingLog) Enabled(context.Context, slog.Level) bool  { return true }
func (panickingLog) Handle(context.Context, slog.Record) error { panic("log") }

// What cannot be logged is done all the same.
func TestLogThatPanicsLosesItsLine(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Logger = slog.New(panickingLog{slog.DiscardHandler}) })
	for id, h := range map[string]func(*message.Message) error{"done": func(*message.Message) error { return nil }, "failed": fail} {
		if _, err := in.Middleware(handle(h))(newMessage(t.Context(), id)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if store.row("done").status != stores.StatusCompleted || store.row("failed").status != stores.StatusPending {
		t.Error(store.story())
	}
}

// Whatever ends the goroutine of a delivery, it is settled, so that its slot is free and
// the message comes again.
func TestFunctionThatExitsItsGoroutineGivesTheMessageBack(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*middleware.InboxConfig){
		"key": func(c *middleware.InboxConfig) {
			c.Keys = keys.First(keys.Func("mine", func(*message.Message) string { runtime.Goexit(); return "" }))
		},
		"order key": func(c *middleware.InboxConfig) {
			c.Retry.OrderKey = func(*message.Message) []byte { runtime.Goexit(); return nil }
		},
		"delivery end": func(c *middleware.InboxConfig) {
			c.Hooks = []middleware.Hook{everyHook(func(m string) { exitIf(m == "DeliveryEnd") })}
		},
		"commit end": func(c *middleware.InboxConfig) {
			c.Hooks = []middleware.Hook{everyHook(func(m string) { exitIf(m == "CommitEnd") })}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInbox(t, newLedger(), configure)
			m := newMessage(t.Context(), "a")
			over := make(chan struct{})
			go func() {
				defer close(over)
				_, _ = in.Middleware(handle(func(*message.Message) error { return nil }))(m)
			}()
			<-over
			select {
			case <-m.Nacked():
			default:
				t.Error("nobody has settled it")
			}
		})
	}
}

func exitIf(exit bool) {
	if exit {
		runtime.Goexit()
	}
}

// On a router: every delivery of a topic meets functions that panic, and each message is
// done once.
func TestFunctionsThatPanicOnARouter(t *testing.T) {
	t.Parallel()
	broker, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) {
		c.Hooks = []middleware.Hook{everyHook(func(string) { panic("hook") })}
		c.Logger = slog.New(panickingLog{slog.DiscardHandler})
		c.Retry.OrderKey = func(*message.Message) []byte { panic("order key") }
		c.Retry.Classify = func(error) stores.Class { panic("class") }
	})
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := broker.Subscriber(brokers.SubscriberConfig{Group: "stock"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	runs := make(chan string, 10)
	router.AddMiddleware(in.Middleware)
	router.AddConsumerHandler("stock", "orders", s, func(m *message.Message) error {
		runs <- m.UUID
		if m.UUID == "failed" {
			return errors.New("boom")
		}
		return nil
	})
	for _, id := range []string{"done", "failed", "last"} {
		if err := p.Publish("orders", message.NewMessage(id, nil)); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(t.Context()) }()
	for _, want := range []string{"done", "failed", "last"} {
		if got := <-runs; got != want {
			t.Errorf("%s ran, not %s", got, want)
		}
	}
	if err := router.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(runs) > 0 || store.row("last").status != stores.StatusCompleted || store.row("failed").failure.Class != stores.ClassTransient {
		t.Errorf("%d runs more:\n%s", len(runs), store.story())
	}
}
