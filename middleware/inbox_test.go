package middleware_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

func TestConfigErrorsComeAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := middleware.NewInbox(nil, middleware.InboxConfig{
		Service:        "a/b",
		Renamed:        map[string]string{"x": "old", "y": "old"},
		HandlerTimeout: -time.Second,
		Hold:           middleware.HoldConfig{MinPause: time.Hour, MaxPause: time.Minute, Max: -1},
		Limits:         middleware.Limits{ID: 100_000},
		Keys:           keys.First(keys.Coordinates()),
		Fingerprint:    middleware.FingerprintConfig{Off: true, Headers: []string{"TraceParent"}},
		Hooks:          []middleware.Hook{struct{}{}},
	})
	if err == nil {
		t.Fatal("the configuration was taken")
	}
	for _, field := range []string{
		"store", "Service", "Renamed", "HandlerTimeout", "Hold.MaxPause", "Hold.Max", "Limits.ID",
		"Fingerprint.Off", "Fingerprint.Headers", "Hooks[0]",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in:\n%v", field, err)
		}
	}
	if !errors.Is(err, middleware.ErrConsumerShared) {
		t.Error("two handlers renamed to one are not ErrConsumerShared")
	}
}

func TestInFlightIsHeldWithGrowingPausesThenGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{begin: func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
			return nil, stores.Verdict{Outcome: stores.InFlight}, nil
		}}
		var pauses []time.Duration
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Hold = middleware.HoldConfig{Limit: time.Minute, MinPause: 100 * time.Millisecond, MaxPause: 5 * time.Second}
			c.Hooks = []middleware.Hook{holdFunc(func(p time.Duration) { pauses = append(pauses, p) })}
		})
		ctx := withDelivery(t.Context(), brokers.Delivery{})
		start := time.Now()
		_, err := in.Middleware(handle(nil))(newMessage(ctx, "a"))
		if !errors.Is(err, middleware.ErrNotNow) || !errors.Is(err, middleware.ErrInFlight) || middleware.OnlyFailures(err) {
			t.Fatal(err)
		}
		if held := time.Since(start); held > time.Minute || held < 50*time.Second {
			t.Errorf("held for %s", held)
		}
		if pauses[0] > 100*time.Millisecond || pauses[len(pauses)-1] < 2500*time.Millisecond || len(pauses) > 40 {
			t.Errorf("pauses %v", pauses)
		}
		if g := givenBack(ctx); g.Failed || g.After == 0 {
			t.Errorf("given back as %+v", g)
		}
	})
}

type holdFunc func(time.Duration)

func (f holdFunc) Hold(_ context.Context, _ error, pause time.Duration) { f(pause) }

func TestShutdownEndsAHoldAtOnceButNotAHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := &scriptedStore{begin: func(_ int, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
			if strings.HasSuffix(string(c.Key.ID), "held") {
				return nil, stores.Verdict{}, stores.ErrUnavailable
			}
			return &scriptedAttempt{}, stores.Verdict{Outcome: stores.Claimed}, nil
		}}
		in := newInbox(t, store)
		results := make(chan error, 2)
		var handlerCtx error
		for _, id := range []string{"held", "running"} {
			go func() {
				_, err := in.Middleware(handle(func(m *message.Message) error {
					<-time.After(5 * time.Second)
					handlerCtx = m.Context().Err()
					return nil
				}))(newMessage(ctx, id))
				results <- err
			}()
		}
		<-time.After(time.Second)
		stop()
		synctest.Wait()
		if err := <-results; !errors.Is(err, middleware.ErrNotNow) {
			t.Errorf("the held delivery: %v", err)
		}
		if err := <-results; err != nil || handlerCtx != nil {
			t.Errorf("the running delivery: %v, its context: %v", err, handlerCtx)
		}
	})
}

func TestUnknownCommitIsResolved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		resolve  []any // what Resolve answers, in turn
		wantRuns int
		wantErr  error
	}{
		"committed":                      {resolve: []any{true}, wantRuns: 1},
		"committed, known later":         {resolve: []any{stores.ErrUnavailable, stores.ErrUnavailable, true}, wantRuns: 1},
		"not committed, so it runs anew": {resolve: []any{false}, wantRuns: 2},
		"never known":                    {resolve: []any{stores.ErrUnavailable}, wantRuns: 1, wantErr: stores.ErrCommitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				store := &scriptedStore{
					begin: func(n int, _ stores.Claim) (stores.Attempt, stores.Verdict, error) {
						if n > 1 && test.wantRuns == 1 {
							return nil, stores.Verdict{Outcome: stores.Duplicate}, nil
						}
						a := &scriptedAttempt{}
						if n == 1 {
							a.commit = stores.ErrCommitUnknown
						}
						return a, stores.Verdict{Outcome: stores.Claimed}, nil
					},
					resolve: func() (bool, error) {
						answer := test.resolve[min(asked, len(test.resolve)-1)]
						asked++
						err, _ := answer.(error)
						return answer == true, err
					},
				}
				runs := 0
				_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { runs++; return nil }))(newMessage(t.Context(), "a"))
				if runs != test.wantRuns || !errors.Is(err, test.wantErr) || (err == nil) != (test.wantErr == nil) {
					t.Errorf("%d runs, %v", runs, err)
				}
				if err != nil && middleware.OnlyFailures(err) {
					t.Error("an unknown commit counts as a failure")
				}
			})
		})
	}
}

func TestPanicRollsBackAndGoesOnUpWithItsStack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempt := &scriptedAttempt{}
		in := newInbox(t, &scriptedStore{begin: func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
			return attempt, stores.Verdict{Outcome: stores.Claimed}, nil
		}})
		m := newMessage(t.Context(), "a")
		before := m.Context()
		defer func() {
			r := recover()
			stack := make([]byte, 64<<10)
			stack = stack[:runtime.Stack(stack, false)]
			if p, ok := r.(*middleware.PanicError); !ok || p.Value() != "boom" || !attempt.rolledBack || attempt.committed || m.Context() != before {
				t.Error(r, attempt)
			}
			if !strings.Contains(string(stack), "panickingHandler") {
				t.Errorf("the handler is not in the stack:\n%s", stack)
			}
		}()
		_, _ = in.Middleware(panickingHandler)(m)
	})
}

func panickingHandler(*message.Message) ([]*message.Message, error) { panic("boom") }

func TestGoexitRollsBackAndNacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempt := &scriptedAttempt{}
		in := newInbox(t, &scriptedStore{begin: func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
			return attempt, stores.Verdict{Outcome: stores.Claimed}, nil
		}})
		m := newMessage(t.Context(), "a")
		go func() {
			_, _ = in.Middleware(handle(func(*message.Message) error { runtime.Goexit(); return nil }))(m)
		}()
		select {
		case <-m.Nacked():
		case <-time.After(time.Minute):
			t.Fatal("the message was never settled")
		}
		if !attempt.rolledBack || attempt.committed {
			t.Error(attempt)
		}
	})
}

func TestOutputsAreRolledBackAndFailedAtOnce(t *testing.T) {
	t.Parallel()
	attempt := &scriptedAttempt{}
	store := storeOf(attempt)
	arrived := newMessage(t.Context(), "a")
	arrived.Metadata.Set("event", "placed")
	out, err := newInbox(t, store).Middleware(func(m *message.Message) ([]*message.Message, error) {
		m.UUID, m.Payload = "changed", []byte("changed")
		m.Metadata.Set("event", "changed")
		return []*message.Message{m}, nil
	})(arrived)
	if err != nil || len(out) != 0 || !attempt.rolledBack || attempt.committed {
		t.Fatal(out, err, attempt)
	}
	if len(store.recorded) != 1 || store.recorded[0].Status != stores.StatusFailed || store.recorded[0].Class != stores.ClassOutputs {
		t.Fatalf("%+v", store.recorded)
	}
	kept := store.recorded[0].Content
	if kept.UUID != "a" || string(kept.Payload) != "payload of a" || kept.Metadata["event"] != "placed" {
		t.Errorf("what the handler made of the message was kept, not what arrived: %+v", kept)
	}
}

// A message is acked only when the whole of it is kept.
func TestMessageThatCannotBeKeptGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{quarantine: func() error { return stores.ErrTooLarge }}
		_, err := newInbox(t, store).Middleware(handle(nil))(newMessage(t.Context(), ""))
		if !errors.Is(err, middleware.ErrNotNow) || !errors.Is(err, stores.ErrTooLarge) {
			t.Fatal(err)
		}
	})
}

func TestQuarantineWaitsForTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures := 3
		store := &scriptedStore{}
		store.quarantine = func() error {
			if failures--; failures >= 0 {
				return stores.ErrUnavailable
			}
			return nil
		}
		_, err := newInbox(t, store).Middleware(handle(nil))(newMessage(t.Context(), ""))
		if err != nil || len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonNoKey {
			t.Fatal(err, store.quarantined)
		}
	})
}

func TestKnownCompletedKeysCostNoQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{}
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.CacheTTL = time.Minute })
		runs := 0
		deliver := func(payload string) {
			m := newMessage(t.Context(), "a")
			m.Payload = []byte(payload)
			if _, err := in.Middleware(handle(func(*message.Message) error { runs++; return nil }))(m); err != nil {
				t.Fatal(err)
			}
		}
		deliver("one")
		deliver("one")
		if store.asked() != 1 || runs != 1 {
			t.Fatalf("asked %d times, ran %d times", store.asked(), runs)
		}
		store.begin = func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
			return nil, stores.Verdict{Outcome: stores.Conflict}, nil
		}
		deliver("another payload under the same id")
		if store.asked() != 2 || len(store.quarantined) != 1 {
			t.Fatal("the cache answered for another message")
		}
		<-time.After(2 * time.Minute)
		store.begin = nil
		deliver("one") // for example removed by an operator: the store decides
		if store.asked() != 3 || runs != 2 {
			t.Fatalf("asked %d times, ran %d times", store.asked(), runs)
		}
	})
}

// A failover can lose the commit that the cache knows of.
func TestCacheForgetsWhenTheStoreWasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{}
		in := newInbox(t, store)
		h := in.Middleware(handle(func(*message.Message) error { return nil }))
		for _, id := range []string{"a", "b"} {
			if id == "b" {
				store.begin = func(n int, _ stores.Claim) (stores.Attempt, stores.Verdict, error) {
					if n == 2 {
						return nil, stores.Verdict{}, stores.ErrUnavailable
					}
					return &scriptedAttempt{}, stores.Verdict{Outcome: stores.Claimed}, nil
				}
			}
			if _, err := h(newMessage(t.Context(), id)); err != nil {
				t.Fatal(err)
			}
		}
		before := store.asked()
		if _, err := h(newMessage(t.Context(), "a")); err != nil || store.asked() != before+1 {
			t.Fatal("a key completed before the store was gone is still trusted")
		}
	})
}

func TestOneNameForTwoHandlersIsRefused(t *testing.T) {
	t.Parallel()
	in := newInbox(t, &scriptedStore{}, func(c *middleware.InboxConfig) {
		c.Handler = ""
		c.Renamed = map[string]string{"new": "old"}
	})
	if err := in.Register(t.Context(), "new", "orders"); err != nil {
		t.Fatal(err)
	}
	if err := in.Register(t.Context(), "new", "orders-2"); err != nil {
		t.Fatal(err)
	}
	if err := in.Register(t.Context(), "old", "orders"); !errors.Is(err, middleware.ErrConsumerShared) {
		t.Error(err)
	}
	if err := in.Register(t.Context(), "", "orders"); !errors.Is(err, middleware.ErrNoHandlerName) {
		t.Error(err)
	}
	fixed := newInbox(t, &scriptedStore{})
	if err := errors.Join(fixed.Register(t.Context(), "a", "x"), fixed.Register(t.Context(), "b", "x")); !errors.Is(err, middleware.ErrConsumerShared) {
		t.Error(err)
	}
}

func TestRegistrationIsHeldWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures := 2
		in := newInbox(t, &scriptedStore{register: func(stores.Registration) error {
			if failures--; failures >= 0 {
				return stores.ErrUnavailable
			}
			return nil
		}})
		if _, err := in.Middleware(handle(func(*message.Message) error { return nil }))(newMessage(t.Context(), "a")); err != nil {
			t.Fatal(err)
		}
	})
}
