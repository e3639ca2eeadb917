package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func TestWorkerConfigErrorsComeAllAtOnce(t *testing.T) {
	t.Parallel()
	if _, err := middleware.NewRetryWorker(nil, middleware.RetryWorkerConfig{}); err == nil {
		t.Error("a worker without an inbox")
	}
	in := newInbox(t, &scriptedStore{}) // which has no Retries
	_, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{
		Handlers:    map[string]message.HandlerFunc{"stock": nil},
		Concurrency: -1, PollInterval: -1, DrainTimeout: -1,
	})
	if err == nil {
		t.Fatal("the configuration was taken")
	}
	for _, part := range []string{"stores.Retries", `Handlers["stock"]`, "Concurrency", "PollInterval", "DrainTimeout"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not named in:\n%v", part, err)
		}
	}
	if _, err := middleware.NewRetryWorker(newInbox(t, newLedger()), middleware.RetryWorkerConfig{}); err == nil || !strings.Contains(err.Error(), "Handlers is empty") {
		t.Error(err)
	}
}

func TestWorkerRunsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := work(t, newInbox(t, newLedger()), succeed, synctest.Wait)
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "called twice") {
			t.Error(err)
		}
	})
}

func TestParkedMessageIsRunUntilItIsCompleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		f := failedBefore("a", stores.PlacementParked, 1)
		f.DueIn, f.Topic, f.Coordinates = time.Minute, "orders", "orders/3/1042"
		store.put(f)
		runs, start := 0, time.Now()
		w := work(t, newInbox(t, store, end.configure), func(m *message.Message) error {
			if runs++; runs == 1 && time.Since(start) < time.Minute {
				t.Error("it ran before it was due")
			}
			if string(m.Payload) != "payload of a" {
				t.Errorf("%q", m.Payload)
			}
			if runs < 3 {
				return errors.New("boom")
			}
			return nil
		}, func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted }) })
		if e := end.last(); !e.Retry || e.Result != middleware.ResultCompleted || runs != 3 {
			t.Errorf("%d runs, %+v", runs, e)
		}
		for _, r := range store.registered {
			if r.Topic != "" {
				t.Errorf("a retry has registered %q", r.Topic)
			}
		}
		if s := w.Stats(); s.Taken != 3 || s.Completed != 1 || s.Failed != 2 || len(s.Skipped) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestParkedMessageEndsFailed(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(*message.Message) error{
		"error":   fail,
		"panic":   func(*message.Message) error { panic("boom") },
		"outputs": nil, // see below
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, c := newLedger(), &copies{}
				store.put(failedBefore("a", stores.PlacementParked, 8))
				work(t, newInbox(t, store, withCopies(c)), handler, func() {
					waitUntil(t, func() bool { return store.row("a").status == stores.StatusFailed })
				}, func(c *middleware.RetryWorkerConfig) {
					if handler == nil {
						c.Handlers["stock"] = func(m *message.Message) ([]*message.Message, error) { return []*message.Message{m}, nil }
					}
				})
				if r := store.row("a"); r.failure.Attempts != 10 && handler != nil || r.failure.Content.Payload == nil || len(c.published) != 1 {
					t.Errorf("%+v, %d copies\n%s", r, len(c.published), store.story())
				}
			})
		})
	}
}

// Every due message that was not run is counted with its reason.
func TestSkippedMessagesAreCountedWithTheirReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, skips := newLedger(), &skipHook{}
		for _, id := range []string{"completed", "changed", "in flight", "unavailable", "run"} {
			store.put(failedBefore(id, stores.PlacementParked, 1))
		}
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Hooks = []middleware.Hook{skips}
			c.Hold.Limit = time.Second
		})
		once := false
		w := work(t, in, succeed, func() { waitUntil(t, func() bool { return store.row("run").status == stores.StatusCompleted }) },
			func(c *middleware.RetryWorkerConfig) {
				c.Concurrency = 1
				c.PollInterval = time.Minute
				// What happens between Due and the claim.
				c.Middlewares = []message.HandlerMiddleware{func(h message.HandlerFunc) message.HandlerFunc {
					return func(m *message.Message) ([]*message.Message, error) {
						store.mu.Lock()
						switch r := store.rows[m.UUID]; m.UUID {
						case "completed":
							r.status = stores.StatusCompleted
						case "changed":
							r.revision++
							r.status = stores.StatusDiscarded
						case "in flight":
							store.inFlight[m.UUID] = true
						case "unavailable":
							if !once {
								once = true
								time.AfterFunc(5*time.Second, store.failingLocked("begin", "look", "record"))
							}
						}
						store.mu.Unlock()
						return h(m)
					}
				}}
			})
		s := w.Stats()
		for reason, n := range map[middleware.SkipReason]int{
			middleware.SkipCompleted: 1, middleware.SkipChanged: 1, middleware.SkipInFlight: 1, middleware.SkipNotNow: 1,
		} {
			if s.Skipped[reason] < n || skips.count(reason) != s.Skipped[reason] {
				t.Errorf("%s: %d counted, %d told to the hook", reason, s.Skipped[reason], skips.count(reason))
			}
		}
		if s.Failed != 0 || store.row("in flight").failure.Attempts != 1 || store.calls("record") != 0 {
			t.Errorf("counted: %+v", s)
		}
	})
}

// The worker had it, and neither recorded nor released it until the reservation ran out.
func TestMessageThatMayHaveEndedAWorkerIsCountedBeforeItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.put(failedBefore("a", stores.PlacementParked, 3))
		store.rows["a"].reserved = true
		work(t, newInbox(t, store), func(*message.Message) error {
			if r := store.row("a"); !r.presumed || r.failure.Attempts != 4 || r.failure.Placement != stores.PlacementParked || time.Until(r.due) < 14*time.Second {
				t.Errorf("%+v", r)
			}
			return nil
		}, func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted }) })
	})
}

func TestMessageThatEndedTooManyWorkersIsFailedWithoutARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		f := failedBefore("a", stores.PlacementParked, 10)
		f.Start = true
		store.put(f)
		work(t, newInbox(t, store), mustNotRun(t), func() {
			waitUntil(t, func() bool { return store.row("a").status == stores.StatusFailed })
		})
		if r := store.row("a"); r.failure.Class != stores.ClassCrash || r.failure.Attempts != 10 {
			t.Errorf("%+v", r)
		}
	})
}

// The one that runs alone waits for its turn to ask the store; the next that wants to
// run alone must not have it.
func TestRunningAloneDoesNotKeepTheIntakePaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		for _, id := range []string{"a", "b", "c"} {
			f := failedBefore(id, stores.PlacementParked, 1)
			f.Start = true
			if id != "a" {
				f.DueIn = 3 * time.Second // when a cannot be recorded
			}
			store.put(f)
		}
		start := time.Now()
		work(t, newInbox(t, store), func(*message.Message) error {
			if time.Since(start) < time.Second {
				store.failing("record", "begin")
				go func() {
					<-time.After(10 * time.Second)
					store.mu.Lock()
					defer store.mu.Unlock()
					store.fault = nil
				}()
			}
			<-time.After(time.Second)
			if time.Since(start) < time.Minute {
				return errors.New("boom")
			}
			return nil
		}, func() {
			waitUntil(t, func() bool {
				return store.row("a").failure.Class != "" && store.row("b").failure.Class != "" && store.row("c").failure.Class != "" &&
					!store.row("a").presumed && !store.row("b").presumed && !store.row("c").presumed
			})
		})
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %s to go on after 10 s\n%s", took, store.story())
		}
	})
}

func TestMessagesOfUnknownHandlersAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, skips := newLedger(), &skipHook{}
		store.backlog = []stores.Backlog{
			{Consumer: stores.Consumer{Service: "inventory", Handler: "gone"}, Due: 7},
			{Consumer: stores.Consumer{Service: "inventory", Handler: "stock"}, Due: 3},
			{Consumer: stores.Consumer{Service: "billing", Handler: "invoice"}, Due: 5},
		}
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hooks = []middleware.Hook{skips} })
		w := work(t, in, succeed, func() { <-time.After(20 * time.Second) })
		if n := w.Stats().Skipped[middleware.SkipNoHandler]; n != 7 && n != 14 {
			t.Errorf("%d skipped", n)
		}
		if skips.consumer(middleware.SkipNoHandler).Handler != "gone" {
			t.Error(skips)
		}
	})
}

func TestTwoWorkersNeverRunOneMessageTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		const messages = 300
		for i := range messages {
			store.put(failedBefore(fmt.Sprint(i), stores.PlacementParked, 1))
		}
		var runs atomic.Int32
		handler := func(*message.Message) error {
			runs.Add(1)
			<-time.After(10 * time.Millisecond)
			return nil
		}
		done := func() {
			waitUntil(t, func() bool {
				store.mu.Lock()
				defer store.mu.Unlock()
				for _, r := range store.rows {
					if r.status != stores.StatusCompleted {
						return false
					}
				}
				return true
			})
		}
		work(t, newInbox(t, store), handler, func() { work(t, newInbox(t, store), handler, done) })
		if runs.Load() != messages {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

// A handler that does not heed its deadline must not keep the program from ending.
func TestDrainHasAnEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.put(failedBefore("a", stores.PlacementParked, 1))
		stuck := make(chan struct{})
		w, err := middleware.NewRetryWorker(newInbox(t, store), middleware.RetryWorkerConfig{
			Handlers:     map[string]message.HandlerFunc{"stock": handle(func(*message.Message) error { <-stuck; return nil })},
			DrainTimeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- w.Run(ctx) }()
		<-time.After(time.Second)
		stop()
		start := time.Now()
		select {
		case err := <-stopped:
			if err == nil {
				t.Error("that a handler still runs is not said")
			}
			if took := time.Since(start); took != time.Minute {
				t.Errorf("drained for %s", took)
			}
		case <-time.After(time.Hour):
			t.Error("Run does not return")
		}
		close(stuck)
	})
}
