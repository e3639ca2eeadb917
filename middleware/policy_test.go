package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func TestPolicyErrorsComeAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := middleware.NewInbox(&scriptedStore{}, middleware.InboxConfig{
		Service: "inventory",
		Retry: middleware.RetryPolicy{
			MaxAttempts: -1, MaxUncounted: -1, MaxAge: -time.Second, Placement: 7,
			Backoff: middleware.BackoffConfig{Min: -time.Second},
		},
		RetryByHandler: map[string]middleware.RetryPolicy{
			"stock": {MaxAttempts: -2, Backoff: middleware.BackoffConfig{Min: time.Hour, Max: time.Minute}},
		},
		Keep:        middleware.KeepConfig{MaxBytes: -1, Codec: &middleware.Codec{}},
		DeadLetters: middleware.DeadLetterConfig{Topic: "dead"},
	})
	if err == nil {
		t.Fatal("the configuration was taken")
	}
	for _, field := range []string{
		"Retry.MaxAttempts is -1", "Retry.MaxUncounted", "Retry.MaxAge is -1s", "Retry.Placement is unknown", "Retry.Backoff.Min is -1s",
		`RetryByHandler["stock"].MaxAttempts is -2`, `RetryByHandler["stock"].Backoff.Max is 1m, less`,
		"Keep.MaxBytes", "Keep.Codec.Name", "Keep.Codec.Encode", "DeadLetters.Topic",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in:\n%v", field, err)
		}
	}
}

func TestDeadLettersNeedATopic(t *testing.T) {
	t.Parallel()
	_, err := middleware.NewInbox(&scriptedStore{}, middleware.InboxConfig{
		Service: "inventory", DeadLetters: middleware.DeadLetterConfig{Publisher: &copies{}},
	})
	if err == nil || !strings.Contains(err.Error(), "DeadLetters.Publisher") {
		t.Error(err)
	}
}

// A policy with zeros is one with the defaults: zero attempts does not mean none.
func TestZeroPolicyIsTheDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store)
		for id, attempts := range map[string]int{"ninth": 8, "tenth": 9} {
			store.put(failedBefore(id, stores.PlacementRedelivered, attempts))
			if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), id)); err != nil {
				t.Fatal(err)
			}
		}
		if r := store.row("ninth"); r.status != stores.StatusPending || r.failure.Placement != stores.PlacementParked || r.failure.Attempts != 9 {
			t.Errorf("after nine attempts: %+v", r)
		}
		if r := store.row("tenth"); r.status != stores.StatusFailed || !strings.Contains(r.failure.Error, "10 of 10 attempts failed") {
			t.Errorf("after ten attempts: %+v", r)
		}
	})
}

func TestMaxAgeEndsTheRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxAge = time.Hour })
		store.put(failedBefore("a", stores.PlacementRedelivered, 1))
		<-time.After(time.Hour)
		_, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a"))
		if r := store.row("a"); err != nil || r.status != stores.StatusFailed || !strings.Contains(r.failure.Error, "at most 1h0m0s are allowed") {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// Waiting behind others, or in quarantine, is not failing.
func TestAgeBeginsWithTheFirstFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxAge = time.Hour })
		waited := failedBefore("a", stores.PlacementRedelivered, 0)
		waited.Class = stores.ClassOrder
		store.put(waited)
		<-time.After(25 * time.Hour)
		for attempt := 1; attempt <= 2; attempt++ {
			_, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a"))
			if r := store.row("a"); err != nil || r.failure.Attempts != attempt || r.status != stores.StatusPending {
				t.Fatalf("%v, after failure %d: %+v", err, attempt, r)
			}
			store.mu.Lock()
			store.rows["a"].failure.Placement, store.rows["a"].due = stores.PlacementRedelivered, time.Now()
			store.mu.Unlock()
		}
	})
}

// Whatever a handler asks for, a message ends within its bounds.
func TestRetryAfterEndsWithTheMaxAge(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{2 * time.Hour, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			store, begun := newLedger(), time.Now()
			in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxAge = time.Hour })
			store.put(failedBefore("a", stores.PlacementRedelivered, 1))
			<-time.After(40 * time.Minute)
			_, err := in.Middleware(handle(func(*message.Message) error {
				return middleware.RetryAfter(errors.New("boom"), after)
			}))(newMessage(t.Context(), "a"))
			if r := store.row("a"); err != nil || r.status != stores.StatusPending || r.due.Sub(begun) != time.Hour {
				t.Errorf("%v, due %s after its first failure", err, r.due.Sub(begun))
			}
		})
	}
}

func TestHandlersHavePoliciesOfTheirOwn(t *testing.T) {
	t.Parallel()
	store := &scriptedStore{}
	in := newInbox(t, store, func(c *middleware.InboxConfig) {
		c.Handler = ""
		c.RetryByHandler = map[string]middleware.RetryPolicy{"once": {MaxAttempts: 1}}
	})
	for _, handler := range []string{"once", "others"} {
		if _, err := in.Middleware(handle(fail))(newMessage(inHandler(t, handler), "a")); err != nil {
			t.Fatal(err)
		}
	}
	if store.recorded[0].Status != stores.StatusFailed || store.recorded[1].Status != stores.StatusPending {
		t.Errorf("%+v", store.recorded)
	}
}

// Marks are found through wrapping, and come before the program's own classes.
func TestClassesOfFailures(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	wrapped := func(err error) error { return fmt.Errorf("while paying: %w", errors.Join(boom, err)) }
	for name, test := range map[string]struct {
		err    error
		class  stores.Class
		status stores.Status
	}{
		"plain":                 {boom, stores.ClassTransient, stores.StatusPending},
		"permanent":             {wrapped(middleware.Permanent(boom)), stores.ClassPermanent, stores.StatusFailed},
		"contended":             {wrapped(middleware.Contention(boom)), stores.ClassContention, stores.StatusPending},
		"retry after":           {wrapped(middleware.RetryAfter(boom, time.Hour)), stores.ClassTransient, stores.StatusPending},
		"deadline":              {wrapped(context.DeadlineExceeded), stores.ClassTimeout, stores.StatusPending},
		"ended the transaction": {wrapped(stores.ErrTxManaged), stores.ClassConduct, stores.StatusPending},
		"the program's":         {wrapped(errDeclined), "declined", stores.StatusPending},
		"a mark and its own":    {middleware.Permanent(errDeclined), stores.ClassPermanent, stores.StatusFailed},
		"the classifier panics": {wrapped(errMean), stores.ClassTransient, stores.StatusPending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &scriptedStore{}
			in := newInbox(t, store, func(c *middleware.InboxConfig) {
				c.Retry.MaxImmediate = -1
				c.Retry.Classify = func(err error) stores.Class {
					switch {
					case errors.Is(err, errMean):
						panic("what is this")
					case errors.Is(err, errDeclined):
						return "declined"
					}
					return ""
				}
			})
			_, err := in.Middleware(handle(func(*message.Message) error { return test.err }))(newMessage(t.Context(), "a"))
			if err != nil || len(store.recorded) != 1 {
				t.Fatalf("%v, %+v", err, store.recorded)
			}
			f := store.recorded[0]
			if f.Class != test.class || f.Status != test.status || f.Attempts != 1 || f.Cause != stores.CauseOf(f.Class, test.err.Error()) {
				t.Errorf("%+v", f)
			}
			if name == "retry after" && f.DueIn != time.Hour {
				t.Errorf("due in %s", f.DueIn)
			}
		})
	}
}

var (
	errDeclined = errors.New("declined")
	errMean     = errors.New("mean")
)

func TestMarksOfNilAreNil(t *testing.T) {
	t.Parallel()
	if middleware.Permanent(nil) != nil || middleware.Contention(nil) != nil || middleware.RetryAfter(nil, time.Second) != nil {
		t.Error("no error became one")
	}
}

// Contention is over as soon as it is tried again.
func TestContentionIsRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ max, lost, runs int }{
		"over in time":     {max: 3, lost: 3, runs: 4},
		"never over":       {max: 3, lost: 100, runs: 4},
		"not to be tried":  {max: -1, lost: 1, runs: 1},
		"the default of 3": {max: 0, lost: 100, runs: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newLedger()
				in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxImmediate = test.max })
				runs, start := 0, time.Now()
				_, err := in.Middleware(handle(func(*message.Message) error {
					if runs++; runs <= test.lost {
						return middleware.Contention(errors.New("version 7 is gone"))
					}
					return nil
				}))(newMessage(t.Context(), "a"))
				if err != nil || runs != test.runs || time.Since(start) != 0 {
					t.Errorf("%v, %d runs in %s", err, runs, time.Since(start))
				}
				r := store.row("a")
				if test.lost < test.runs && r.status != stores.StatusCompleted {
					t.Errorf("not completed: %+v", r)
				}
				if test.lost >= test.runs && (r.failure.Class != stores.ClassContention || r.failure.Attempts != 1) {
					t.Errorf("not recorded as one failure: %+v", r)
				}
			})
		})
	}
}

func TestBackoffDoublesUpToItsMaximum(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		backoff       middleware.BackoffConfig
		attempts      int // before
		atLeast, most time.Duration
	}{
		"first":             {middleware.BackoffConfig{Min: time.Second, Max: time.Minute}, 0, time.Second / 2, time.Second},
		"fourth":            {middleware.BackoffConfig{Min: time.Second, Max: time.Minute}, 3, 4 * time.Second, 8 * time.Second},
		"far":               {middleware.BackoffConfig{Min: 40 * time.Second, Max: time.Hour}, 90, time.Hour / 2, time.Hour},
		"far and unbounded": {middleware.BackoffConfig{Min: time.Second, Max: math.MaxInt64}, 90, math.MaxInt64 / 2, math.MaxInt64},
		"a long minimum":    {middleware.BackoffConfig{Min: time.Hour}, 5, time.Hour / 2, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &scriptedStore{}
			store.begin = func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
				return &scriptedAttempt{}, stores.Verdict{Outcome: stores.Claimed, Failure: stores.FailureState{Version: 1, Attempts: test.attempts}}, nil
			}
			in := newInbox(t, store, func(c *middleware.InboxConfig) {
				c.Retry.MaxAttempts, c.Retry.Backoff = 100, test.backoff
			})
			if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a")); err != nil {
				t.Fatal(err)
			}
			if due := store.recorded[0].DueIn; due < test.atLeast || due > test.most {
				t.Errorf("due in %s", due)
			}
		})
	}
}

// fail is a handler that always fails.
func fail(*message.Message) error { return errors.New("boom") }

// inHandler is the context of a message that a router gives to a handler.
func inHandler(t *testing.T, name string) context.Context {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan context.Context, 1)
	sub := oneMessage{make(chan *message.Message, 1)}
	m := message.NewMessage("", nil)
	m.SetContext(context.WithoutCancel(newMessage(t.Context(), "").Context()))
	sub.messages <- m
	close(sub.messages)
	router.AddConsumerHandler(name, "orders", sub, func(m *message.Message) error {
		got <- m.Context()
		return nil
	})
	if err := router.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return <-got
}

type oneMessage struct{ messages chan *message.Message }

func (s oneMessage) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.messages, nil
}
func (oneMessage) Close() error { return nil }
