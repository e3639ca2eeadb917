package middleware_test

import (
	"context"
	"errors"
	"fmt"
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

func storeOf(a stores.Attempt) *scriptedStore { return storeOfAll(func() stores.Attempt { return a }) }

func storeOfAll(next func() stores.Attempt) *scriptedStore {
	return &scriptedStore{begin: func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
		return next(), stores.Verdict{Outcome: stores.Claimed}, nil
	}}
}

// interruptedAttempt is kept from succeeding by the database.
type interruptedAttempt struct{ scriptedAttempt }

func (*interruptedAttempt) Interrupted() error { return errors.New("the server restarts") }

func TestWhatTheDatabaseDidIsTriedAgainAndNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		in := newInbox(t, storeOfAll(func() stores.Attempt {
			if begun++; begun == 1 {
				return &interruptedAttempt{}
			}
			return &scriptedAttempt{}
		}))
		runs := 0
		_, err := in.Middleware(handle(func(*message.Message) error {
			if runs++; runs == 1 {
				return errors.New("connection lost")
			}
			return nil
		}))(newMessage(t.Context(), "a"))
		if err != nil || runs != 2 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

// Whatever the handler met on its way, it has said what is to become of the message.
func TestWhatTheHandlerMarksComesBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		returns error
		outputs int
		runs    int
		class   stores.Class
	}{
		"permanent":  {middleware.Permanent(boom), 0, 1, stores.ClassPermanent},
		"later":      {middleware.RetryAfter(boom, time.Hour), 0, 1, stores.ClassTransient},
		"contended":  {middleware.Contention(boom), 0, 4, stores.ClassContention},
		"outputs":    {nil, 1, 1, stores.ClassOutputs},
		"not a word": {boom, 0, 3, stores.ClassInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, runs := storeOfAll(func() stores.Attempt { return &interruptedAttempt{} }), 0
				_, err := newInbox(t, store).Middleware(func(*message.Message) ([]*message.Message, error) {
					runs++
					return make([]*message.Message, test.outputs), test.returns
				})(newMessage(t.Context(), "a"))
				if err != nil || runs != test.runs || len(store.recorded) != 1 || store.recorded[0].Class != test.class {
					t.Errorf("%v, %d runs, %+v", err, runs, store.recorded)
				}
			})
		})
	}
}

type refusingAttempt struct{ interruptedAttempt }

func (*refusingAttempt) Interrupted() error     { return nil }
func (*refusingAttempt) Refuses(err error) bool { return errors.Is(err, errTooLong) }

var errTooLong = errors.New("value too long")

func TestRefusedValueIsPermanentUnlessSomebodySaysOtherwise(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		returns  error
		classify func(error) stores.Class
		class    stores.Class
	}{
		"refused":        {errTooLong, nil, stores.ClassPermanent},
		"wrapped":        {fmt.Errorf("order: %w", errTooLong), nil, stores.ClassPermanent},
		"something else": {errors.New("boom"), nil, stores.ClassTransient},
		"later":          {middleware.RetryAfter(errTooLong, time.Hour), nil, stores.ClassTransient},
		"classified":     {errTooLong, func(error) stores.Class { return stores.ClassTransient }, stores.ClassTransient},
		"not classified": {errTooLong, func(error) stores.Class { return "" }, stores.ClassPermanent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := storeOfAll(func() stores.Attempt { return &refusingAttempt{} })
				in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.Classify = test.classify })
				_, err := in.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, test.returns })(newMessage(t.Context(), "a"))
				if err != nil || len(store.recorded) != 1 || store.recorded[0].Class != test.class {
					t.Errorf("%v, %+v", err, store.recorded)
				}
			})
		})
	}
}

// A message that brings the server down each time must end as a failure.
func TestRunsOfOneDeliveryHaveACeiling(t *testing.T) {
	t.Parallel()
	for name, attempt := range map[string]func() stores.Attempt{
		"interrupted":    func() stores.Attempt { return &interruptedAttempt{} },
		"unknown commit": func() stores.Attempt { return &scriptedAttempt{commit: stores.ErrCommitUnknown} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := storeOfAll(attempt)
				store.resolve = func() (bool, error) { return false, nil }
				runs := 0
				ctx := withDelivery(t.Context(), brokers.Delivery{})
				_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error {
					runs++
					if name == "interrupted" {
						return errors.New("connection lost")
					}
					return nil
				}))(newMessage(ctx, "a"))
				if runs != 3 || err != nil || len(store.recorded) != 1 {
					t.Fatalf("%d runs, %v, %+v", runs, err, store.recorded)
				}
				if f := store.recorded[0]; f.Attempts != 0 || f.Uncounted != 1 || f.Status != stores.StatusPending {
					t.Errorf("recorded %+v", f)
				}
			})
		})
	}
}

func TestKeyFunctionThatPanicsIsNoKey(t *testing.T) {
	t.Parallel()
	store := &scriptedStore{}
	in := newInbox(t, store, func(c *middleware.InboxConfig) {
		c.Keys = keys.First(keys.Func("mine", func(*message.Message) string { panic("no such field") }))
	})
	_, err := in.Middleware(handle(nil))(newMessage(t.Context(), "a"))
	if err != nil || len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonNoKey ||
		!strings.Contains(store.quarantined[0].Detail, "no such field") {
		t.Errorf("%v, %+v", err, store.quarantined)
	}
}

// A Retry around the inbox must be given the message as it arrived: with what the
// handler made of it the second try would be another message.
func TestFailedHandlerLeavesTheMessageAsItArrived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMessage(t.Context(), "a")
		m.Metadata.Set("event", "placed")
		_, err := newInbox(t, &scriptedStore{}, redelivered).Middleware(handle(func(m *message.Message) error {
			m.UUID, m.Payload = "changed", []byte("changed")
			m.Metadata.Set("event", "changed")
			return errors.New("boom")
		}))(m)
		if err == nil || m.UUID != "a" || string(m.Payload) != "payload of a" || m.Metadata["event"] != "placed" {
			t.Errorf("%v: %+v", err, m)
		}
	})
}

// While the commit was unknown, another message under the same id was completed: this
// one was not.
func TestUnknownCommitMayMeetAnotherMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{
			begin: func(n int, _ stores.Claim) (stores.Attempt, stores.Verdict, error) {
				if n == 1 {
					return &scriptedAttempt{commit: stores.ErrCommitUnknown}, stores.Verdict{Outcome: stores.Claimed}, nil
				}
				return nil, stores.Verdict{Outcome: stores.Conflict}, nil
			},
			resolve: func() (bool, error) { return true, nil },
		}
		_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { return nil }))(newMessage(t.Context(), "a"))
		if err != nil || len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonConflict {
			t.Errorf("%v, %+v", err, store.quarantined)
		}
	})
}

// Nobody would deliver it again.
func TestEarlyAckIsKeptWhenTheDeliveryCannotBeDecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := storeOf(&scriptedAttempt{commit: stores.ErrCommitUnknown})
		store.resolve = func() (bool, error) { return false, stores.ErrUnavailable }
		_, err := newInbox(t, store).Middleware(handle(func(m *message.Message) error { m.Ack(); return nil }))(newMessage(t.Context(), "a"))
		if err != nil || len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonAckedEarly {
			t.Errorf("%v, %+v", err, store.quarantined)
		}
	})
}

// What it did not see refused may be missing from what would be committed.
func TestHandlerThatReturnsTooLateHasFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempt := &scriptedAttempt{}
		_, err := newInbox(t, storeOf(attempt), redelivered).Middleware(handle(func(*message.Message) error {
			<-time.After(time.Minute)
			return nil
		}))(newMessage(t.Context(), "a"))
		if !errors.Is(err, middleware.ErrHandlerTimeout) || middleware.OnlyFailures(err) || attempt.committed || !attempt.rolledBack {
			t.Error(err, attempt)
		}
	})
}

// storeWithoutResolver cannot find out what became of an unknown commit; only the next
// claim tells.
type storeWithoutResolver struct{ middleware.Store }

func TestUnknownCommitsHaveACeilingWithoutAResolver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := newLedger(), 0
		store.fault = func(call string) error {
			if call == "commit" {
				return stores.ErrCommitUnknown
			}
			return nil
		}
		_, err := newInbox(t, storeWithoutResolver{store}).Middleware(handle(func(*message.Message) error { runs++; return nil }))(newMessage(t.Context(), "a"))
		if r := store.row("a"); err != nil || runs != 3 || r.failure.Class != stores.ClassUnknown || r.failure.Attempts != 0 || r.failure.Uncounted != 1 {
			t.Errorf("%v, %d runs, %+v", err, runs, r)
		}
	})
}

// escapedAttempt is one whose handler has committed in the middle.
type escapedAttempt struct{ scriptedAttempt }

func (*escapedAttempt) Rollback(context.Context) error        { return stores.ErrTxEscaped }
func (*escapedAttempt) Escaped(context.Context) (bool, error) { return true, nil }

// To run it again would double what is committed, so it is kept for people, whatever
// the error is like.
func TestMessageWhoseHandlerCommittedIsQuarantined(t *testing.T) {
	t.Parallel()
	for _, err := range []error{errors.New("boom"), panickingError{}} {
		store := storeOf(&escapedAttempt{})
		_, got := newInbox(t, store).Middleware(handle(func(*message.Message) error { return err }))(newMessage(t.Context(), "a"))
		if got != nil || len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonTxCommitted || len(store.recorded) != 0 {
			t.Errorf("%v, %+v", got, store.quarantined)
		}
	}
}
