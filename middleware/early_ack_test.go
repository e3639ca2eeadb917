package middleware_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func ackThen(f func(*message.Message) error) message.HandlerFunc {
	return handle(func(m *message.Message) error {
		m.Ack()
		return f(m)
	})
}

// Nobody delivers it again, so it is parked even if the policy leaves messages to the
// broker.
func TestEarlyAckThatFailsIsParked(t *testing.T) {
	t.Parallel()
	for _, configure := range []func(*middleware.InboxConfig){func(*middleware.InboxConfig) {}, redelivered} {
		store, end := newLedger(), &ends{}
		_, err := newInbox(t, store, configure, end.configure).Middleware(ackThen(fail))(newMessage(t.Context(), "a"))
		r := store.row("a")
		if err != nil || r.failure.Placement != stores.PlacementParked || string(r.failure.Content.Payload) != "payload of a" || r.failure.DueIn == 0 {
			t.Errorf("%v, %+v", err, r)
		}
		if !errors.Is(end.last().Err, middleware.ErrAckedEarly) {
			t.Error(end.last())
		}
	}
}

func TestEarlyAckThatCannotBeParkedIsQuarantined(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]middleware.KeepConfig{
		"off":       {Off: true},
		"too large": {MaxBytes: 1},
		"one-way":   {Codec: &middleware.Codec{Name: "hide", Encode: hide}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newLedger()
			in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Keep = keep })
			_, err := in.Middleware(ackThen(fail))(newMessage(t.Context(), "a"))
			if err != nil || len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonAckedEarly {
				t.Errorf("%v, %+v, %s", err, store.quarantined, store.story())
			}
		})
	}
}

func TestEarlyAckThatSucceedsIsCompleted(t *testing.T) {
	t.Parallel()
	store, end := newLedger(), &ends{}
	_, err := newInbox(t, store, end.configure).Middleware(ackThen(func(*message.Message) error { return nil }))(newMessage(t.Context(), "a"))
	if err != nil || store.row("a").status != stores.StatusCompleted || !errors.Is(end.last().Err, middleware.ErrAckedEarly) {
		t.Error(err, end.last())
	}
}

// The database ended the attempt, so it is to be made again; but who acked and then
// panicked will not be delivered again.
func TestEarlyAckThatPanicsInAnInterruptedAttemptIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.attempt = func(a stores.Attempt) stores.Attempt { return interruptedLedgerAttempt{a} }
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			_, _ = newInbox(t, store).Middleware(ackThen(func(*message.Message) error { panic("boom") }))(newMessage(t.Context(), "a"))
		}()
		if store.row("a").status == 0 && len(store.quarantined) == 0 {
			t.Errorf("the message is lost:\n%s", store.story())
		}
	})
}

type interruptedLedgerAttempt struct{ stores.Attempt }

func (interruptedLedgerAttempt) Interrupted() error { return errors.New("the server restarts") }

// An attempt counted before it began, which the database has ended, was no crash.
func TestPanicInAnInterruptedAttemptIsNoCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.attempt = func(a stores.Attempt) stores.Attempt { return interruptedLedgerAttempt{a} }
		ctx := withDelivery(t.Context(), brokers.Delivery{Suspect: true})
		func() {
			defer func() { _ = recover() }()
			_, _ = newInbox(t, store).Middleware(panickingHandler)(newMessage(ctx, "a"))
		}()
		if r := store.row("a"); r.presumed || r.failure.Attempts != 0 || r.failure.Uncounted != 1 {
			t.Errorf("%+v\n%s", r, store.story())
		}
	})
}

// Its row says that the broker keeps it, which is not so: the quarantine does.
func TestEarlyAckOfASuspectMessageAtTheShutdownLeavesNothingPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		ctx, stop := context.WithCancel(suspect(t.Context()))
		_, err := newInbox(t, store).Middleware(ackThen(func(*message.Message) error {
			stop()
			return context.Canceled
		}))(newMessage(ctx, "a"))
		if r := store.row("a"); err != nil || len(store.quarantined) != 1 || r.status != stores.StatusFailed || r.presumed {
			t.Errorf("%v, %d in quarantine, %+v\n%s", err, len(store.quarantined), r, store.story())
		}
	})
}

// A handler that has acked still runs: its place is taken, and its end is awaited.
func TestWorkerWaitsForHandlersThatAckEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		ids := []string{"a", "b", "c"}
		for _, id := range ids {
			store.put(failedBefore(id, stores.PlacementParked, 1))
		}
		var running, most atomic.Int32
		w := work(t, newInbox(t, store), func(m *message.Message) error {
			m.Ack()
			most.Store(max(most.Load(), running.Add(1)))
			<-time.After(10 * time.Second)
			running.Add(-1)
			return m.Context().Err()
		}, func() {
			waitUntil(t, func() bool {
				return !slices.ContainsFunc(ids, func(id string) bool { return store.row(id).status != stores.StatusCompleted })
			})
		}, func(c *middleware.RetryWorkerConfig) { c.Concurrency = 1 })
		if s := w.Stats(); most.Load() != 1 || s.Completed != 3 || s.Failed != 0 {
			t.Errorf("%d ran at once, %+v\n%s", most.Load(), s, store.story())
		}
	})
}

// The row keeps a message that is retried; a copy in quarantine could be run beside it.
func TestEarlyAckOfARetriedMessageIsNotQuarantined(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"a hiccup": time.Second, "an outage": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, runs, start := newLedger(), 0, time.Now()
				store.put(failedBefore("a", stores.PlacementParked, 1))
				store.fault = func(call string) error {
					if call == "record" && time.Since(start) < away {
						return stores.ErrUnavailable
					}
					return nil
				}
				work(t, newInbox(t, store), func(m *message.Message) error {
					m.Ack()
					if runs++; time.Since(start) < away {
						return errors.New("boom")
					}
					return nil
				}, func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted }) },
					func(c *middleware.RetryWorkerConfig) { c.PollInterval = time.Minute })
				if len(store.quarantined) != 0 || name == "a hiccup" && runs != 2 {
					t.Errorf("%d runs, %d in quarantine\n%s", runs, len(store.quarantined), store.story())
				}
			})
		})
	}
}

// A service that stops goes on trying while the store is away: nobody else has the message.
func TestEarlyAckAtTheShutdownWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	everything := []string{"look", "record", "begin", "commit", "extend", "resolve", "quarantine"}
	for name, test := range map[string]struct {
		says  error
		class map[string]stores.Class // of what is kept, by the kind of handler; none: it is completed
	}{
		"succeeds":         {},
		"fails":            {errors.New("boom"), map[string]stores.Class{"lease": stores.ClassTransient, "stop": stores.ClassTransient, "transaction": stores.ClassTransient}},
		"heeds the end":    {context.Canceled, map[string]stores.Class{"lease": stores.ClassInterrupted, "stop": stores.ClassUnconfirmed, "transaction": ""}},
		"knows it is late": {context.DeadlineExceeded, map[string]stores.Class{"lease": stores.ClassTimeout, "stop": stores.ClassUnconfirmed, "transaction": stores.ClassTimeout}},
	} {
		for kind, configure := range map[string]func(*middleware.InboxConfig){
			"lease": leasing(), "stop": leasing(stopping), "transaction": func(*middleware.InboxConfig) {},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, end, runs := newLedger(), &ends{}, 0
					ctx, stop := context.WithCancel(t.Context())
					_, err := newInbox(t, store, configure, end.configure).Middleware(ackThen(func(*message.Message) error {
						runs++
						time.AfterFunc(2*time.Minute, store.failing(everything...))
						stop()
						return test.says
					}))(newMessage(ctx, "a"))
					row, e := store.row("a"), end.last()
					class, kept := test.class[kind]
					switch {
					case err != nil || row.presumed:
						t.Errorf("%v, %+v\n%s", err, row, store.story())
					case !kept && kind == "transaction": // the commit has not happened, and it would take another run
						if len(store.quarantined) != 1 {
							t.Errorf("%d in quarantine, %+v", len(store.quarantined), e)
						}
					case !kept && (runs != 1 || row.status != stores.StatusCompleted):
						t.Errorf("%d runs, %+v, %+v", runs, row, e)
					case class == "" && kept && len(store.quarantined) != 1:
						t.Errorf("%d in quarantine, %+v", len(store.quarantined), e)
					case class != "" && (runs != 1 || e.Class != class || row.failure.Placement != stores.PlacementParked || row.failure.Content.State != stores.ContentKept || len(store.quarantined) > 0):
						t.Errorf("%d runs, %+v, %+v", runs, row, e)
					}
				})
			})
		}
	}
}

// The store may not come back in time. What is left is the row, which says so.
func TestEarlyAckWhoseStoreDoesNotComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, begun := newLedger(), &ends{}, time.Now()
		ctx, stop := context.WithCancel(t.Context())
		_, err := newInbox(t, store, leasing(), end.configure).Middleware(ackThen(func(*message.Message) error {
			store.failing("look", "record", "begin", "commit", "extend", "resolve", "quarantine")
			stop()
			return nil
		}))(newMessage(ctx, "a"))
		if e := end.last(); err == nil || e.Result != middleware.ResultNotNow || !errors.Is(e.Err, middleware.ErrAckedEarly) || !store.row("a").presumed || time.Since(begun) > 10*time.Minute {
			t.Errorf("%v, after %s: %+v\n%+v", err, time.Since(begun), e, store.row("a"))
		}
	})
}
