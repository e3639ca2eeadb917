package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func suspect(ctx context.Context) context.Context {
	return withDelivery(ctx, brokers.Delivery{Suspect: true, Topic: "orders", Coordinates: "orders/3/1042"})
}

// crashed is the row of a message whose attempt has begun and never ended.
func crashed(id string, attempts int) stores.Failure {
	f := failedBefore(id, stores.PlacementRedelivered, attempts)
	f.Start, f.Class = true, stores.ClassCrash
	f.Content = &stores.Content{State: stores.ContentNone}
	return f
}

// near is the row of a message that was running, beside others, when the process ended.
func near(id string, attempts int) stores.Failure {
	f := crashed(id, attempts)
	f.Class = stores.ClassInterrupted
	return f
}

func TestHealthyFirstDeliveryPaysNothingForFailures(t *testing.T) {
	t.Parallel()
	store := newLedger()
	if _, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { return nil }))(newMessage(t.Context(), "a")); err != nil {
		t.Fatal(err)
	}
	if want := (map[string]int{"register": 1, "begin": 1, "commit": 1}); fmt.Sprint(store.asked) != fmt.Sprint(want) {
		t.Errorf("the store was asked %v, want %v", store.asked, want)
	}
}

func TestSuspectAttemptIsCountedBeforeItBegins(t *testing.T) {
	t.Parallel()
	store := newLedger()
	_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error {
		r := store.row("a")
		if !r.presumed || r.failure.Attempts != 1 || r.failure.Class != stores.ClassInterrupted || r.failure.Coordinates != "orders/3/1042" {
			t.Errorf("if the process ended now, this would be left: %+v", r)
		}
		return nil
	}))(newMessage(suspect(t.Context()), "a"))
	if err != nil || store.row("a").status != stores.StatusCompleted {
		t.Error(err, store.story())
	}
}

// A subscriber of an ordered broker counts what its predecessor may have left unfinished.
func TestSubscriberHearsWhatIsUnfinished(t *testing.T) {
	t.Parallel()
	in := newInbox(t, newLedger())
	h := in.Middleware(handle(func(*message.Message) error { return nil }))
	for _, test := range []struct {
		id         string
		suspect    bool
		unfinished bool
	}{{"a", true, true}, {"a", true, false}, {"b", false, false}} {
		m := newMessage(withDelivery(t.Context(), brokers.Delivery{Suspect: test.suspect}), test.id)
		if _, err := h(m); err != nil {
			t.Fatal(err)
		}
		if got := brokers.UnfinishedFrom(m.Context()); got != test.unfinished {
			t.Errorf("%+v: unfinished is %t", test, got)
		}
	}
}

func TestSuspectAttemptThatFailsIsCountedOnce(t *testing.T) {
	t.Parallel()
	store := newLedger()
	_, err := newInbox(t, store).Middleware(handle(fail))(newMessage(suspect(t.Context()), "a"))
	if r := store.row("a"); err != nil || r.failure.Attempts != 1 || r.presumed || r.failure.Placement != stores.PlacementParked {
		t.Errorf("%v, %+v", err, r)
	}
}

// One delivery that has to ask several times makes one attempt.
func TestSuspectAttemptIsCountedOnceOverTheTurnsOfADelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := newLedger(), 0
		start := time.Now()
		store.fault = func(call string) error {
			if call == "begin" && time.Since(start) < 30*time.Second {
				return stores.ErrUnavailable
			}
			return nil
		}
		_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error {
			if runs++; runs < 3 {
				return middleware.Contention(errors.New("conflict"))
			}
			return errors.New("boom")
		}))(newMessage(suspect(t.Context()), "a"))
		if r := store.row("a"); err != nil || runs != 3 || r.failure.Attempts != 1 || r.failure.Uncounted != 0 {
			t.Errorf("%v, %d runs, %+v\n%s", err, runs, r, store.story())
		}
	})
}

func TestSuspectAttemptThatTheDatabaseEndsIsNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := newLedger(), 0
		store.attempt = func(a stores.Attempt) stores.Attempt { return interruptedLedgerAttempt{a} }
		_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { runs++; return errors.New("deadlock") }))(newMessage(suspect(t.Context()), "a"))
		r := store.row("a")
		if err != nil || runs != 3 || r.failure.Attempts != 0 || r.failure.Uncounted != 1 || r.failure.Class != stores.ClassInterrupted {
			t.Errorf("%v, %d runs, %+v", err, runs, r)
		}
	})
}

// It neither failed nor succeeded, and must not look like a crash.
func TestAttemptCountedAndNotBegunIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.failing("begin")
		ctx, stop := context.WithCancel(suspect(t.Context()))
		go func() {
			<-time.After(time.Minute)
			stop()
		}()
		_, err := newInbox(t, store).Middleware(handle(mustNotRun(t)))(newMessage(ctx, "a"))
		r := store.row("a")
		if !errors.Is(err, middleware.ErrNotNow) || r.presumed || r.failure.Attempts != 0 || r.failure.Uncounted != 1 || r.status != stores.StatusPending {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// The message that ends the process each time must not do so for ever.
func TestMessageThatCrashedTooOftenIsFailedWithoutARun(t *testing.T) {
	t.Parallel()
	store, end := newLedger(), &ends{}
	store.put(crashed("a", 10))
	_, err := newInbox(t, store, end.configure).Middleware(handle(mustNotRun(t)))(newMessage(suspect(t.Context()), "a"))
	r := store.row("a")
	if err != nil || r.status != stores.StatusFailed || r.failure.Class != stores.ClassCrash || r.failure.Attempts != 10 || string(r.failure.Content.Payload) != "payload of a" {
		t.Errorf("%v, %+v", err, r)
	}
	if e := end.last(); e.Result != middleware.ResultFailed || e.Runs != 0 {
		t.Errorf("ended as %+v", e)
	}
}

// Brokers that do not flag redeliveries bring it as if for the first time.
func TestMessageThatCrashedIsSuspectWhateverTheBrokerSays(t *testing.T) {
	t.Parallel()
	store := newLedger()
	store.put(crashed("spent", 10))
	store.put(crashed("again", 3))
	in := newInbox(t, store)
	if _, err := in.Middleware(handle(mustNotRun(t)))(newMessage(t.Context(), "spent")); err != nil || store.row("spent").status != stores.StatusFailed {
		t.Error(err, store.story())
	}
	_, err := in.Middleware(handle(func(*message.Message) error {
		if r := store.row("again"); r.failure.Attempts != 4 || !r.presumed {
			t.Errorf("not counted: %+v", r)
		}
		return nil
	}))(newMessage(t.Context(), "again"))
	if err != nil || store.row("again").status != stores.StatusCompleted {
		t.Error(err, store.story())
	}
}

// A message that was only near the one that ended the process must not be counted with
// it again and again.
func TestMessagesThatMayHaveCrashedRunOneAtATime(t *testing.T) {
	t.Parallel()
	for name, turns := range map[string]int{"at once": 1, "in a later turn": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newLedger()
				in := newInbox(t, store)
				var running, most atomic.Int32
				results := make(chan error)
				for i := range 5 {
					id := fmt.Sprint(i)
					store.put(crashed(id, 1))
					runs := 0
					go func() {
						_, err := in.Middleware(handle(func(*message.Message) error {
							if runs++; runs < turns {
								return middleware.Contention(errors.New("conflict"))
							}
							most.Store(max(most.Load(), running.Add(1)))
							<-time.After(time.Second)
							running.Add(-1)
							return nil
						}))(newMessage(suspect(t.Context()), id))
						results <- err
					}()
				}
				for range 5 {
					if err := <-results; err != nil {
						t.Error(err)
					}
				}
				if most.Load() != 1 {
					t.Errorf("%d ran at once", most.Load())
				}
			})
		})
	}
}

// Two deliveries of one message, both suspect: its attempts are counted, and it is
// completed once.
func TestTwoSuspectDeliveriesOfOneMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store)
		var runs atomic.Int32
		results := make(chan error)
		for range 2 {
			go func() {
				_, err := in.Middleware(handle(func(*message.Message) error {
					runs.Add(1)
					<-time.After(time.Second)
					return nil
				}))(newMessage(suspect(t.Context()), "a"))
				results <- err
			}()
		}
		if err := errors.Join(<-results, <-results); err != nil || runs.Load() != 1 || store.row("a").status != stores.StatusCompleted {
			t.Errorf("%v, %d runs\n%s", err, runs.Load(), store.story())
		}
	})
}

// losesStarts is a ledger that keeps the first record of a start and then is away for
// a while, so that nobody hears of it.
type losesStarts struct {
	*ledger

	away  time.Duration
	since time.Time
	then  func() // may be nil
}

func (l *losesStarts) Record(ctx context.Context, f stores.Failure) (int64, error) {
	version, err := l.ledger.Record(ctx, f)
	if f.Start && l.since.IsZero() {
		if l.since = time.Now(); l.then != nil {
			l.then()
		}
		return 0, stores.ErrUnavailable
	}
	return version, err
}

func (l *losesStarts) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	if !l.since.IsZero() && time.Since(l.since) < l.away {
		return stores.Verdict{}, stores.ErrUnavailable
	}
	return l.ledger.Look(ctx, k, f)
}

// What this delivery has begun and not heard of is no crash of somebody else.
func TestStartWhoseAnswerIsLostIsNoCrash(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"back at once": 0, "back when others may begin": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, most := range []int{1, 10} {
				synctest.Test(t, func(t *testing.T) {
					store, runs := &losesStarts{ledger: newLedger(), away: away}, 0
					in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = most })
					_, err := in.Middleware(handle(func(*message.Message) error { runs++; return errors.New("boom") }))(newMessage(suspect(t.Context()), "a"))
					if r := store.row("a"); err != nil || runs != 1 || r.failure.Attempts != 1 || r.failure.Class != stores.ClassTransient {
						t.Errorf("%v, %d runs of at most %d, %+v\n%s", err, runs, most, r, store.story())
					}
				})
			}
		})
	}
}

// The service stops before it has heard of the start: the attempt has not begun, and does not count.
func TestStartWhoseAnswerIsLostIsGivenBackAtTheShutdown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*middleware.InboxConfig){"transaction": func(*middleware.InboxConfig) {}, "lease": leasing(), "stop": leasing(stopping)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(suspect(t.Context()))
				store := &losesStarts{ledger: newLedger(), then: stop}
				_, err := newInbox(t, store, change).Middleware(handle(mustNotRun(t)))(newMessage(ctx, "a"))
				if r := store.row("a"); err == nil || r.presumed || r.failure.Attempts != 0 || r.failure.Uncounted != 1 {
					t.Errorf("%v, %+v\n%s", err, r, store.story())
				}
			})
		})
	}
}

// sameID is a ledger that refuses the first start. Meanwhile another message with the same id has
// counted its first attempt.
type sameID struct {
	*ledger

	once sync.Once
}

func (s *sameID) Record(ctx context.Context, f stores.Failure) (version int64, err error) {
	refused := false
	s.once.Do(func() {
		refused = true
		f.Fingerprint.Digest[0]++
		_, err = s.ledger.Record(ctx, f)
		err = errors.Join(err, stores.ErrUnavailable)
	})
	if refused {
		return 0, err
	}
	return s.ledger.Record(ctx, f)
}

// The row of another message with the same id looks like the start that got no answer. The message
// must not ask for its claim.
func TestStartOfAnotherMessageIsNotItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &sameID{ledger: newLedger()}
		_, err := newInbox(t, store).Middleware(handle(mustNotRun(t)))(newMessage(suspect(t.Context()), "a"))
		if r := store.row("a"); err != nil || !r.presumed || r.failure.Attempts != 1 || len(store.quarantined) != 1 || store.asked["begin"] > 0 {
			t.Errorf("%v, %d in quarantine, asked %v, %+v\n%s", err, len(store.quarantined), store.asked, r, store.story())
		}
	})
}

// crossed is a ledger in which another delivery asks for the key when an attempt is counted, and gives
// it back when the attempt is to be uncounted.
type crossed struct {
	*ledger

	stop func()
}

func (c *crossed) Record(ctx context.Context, f stores.Failure) (int64, error) {
	version, err := c.ledger.Record(ctx, f)
	c.mu.Lock()
	c.inFlight["a"] = f.Start
	c.mu.Unlock()
	if f.Start {
		c.stop()
	}
	return version, err
}

// A copy that asks at the wrong moment finds a counted attempt that will not begin, and would wait for
// it: the count must go although the key is in flight.
func TestCountIsTakenBackWhileACopyAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(suspect(t.Context()))
		store := &crossed{newLedger(), stop}
		_, err := newInbox(t, store).Middleware(handle(mustNotRun(t)))(newMessage(ctx, "a"))
		if r := store.row("a"); err == nil || r.presumed || r.failure.Attempts != 0 || r.failure.Uncounted != 1 {
			t.Errorf("%v, %+v\n%s", err, r, store.story())
		}
	})
}

// overtaken is a ledger that refuses the first start. Meanwhile another delivery has counted itself
// and failed, and a third one has counted itself.
type overtaken struct {
	*ledger

	once  sync.Once
	class stores.Class // of the third one
}

func (o *overtaken) Record(ctx context.Context, f stores.Failure) (int64, error) {
	refused := false
	o.once.Do(func() {
		refused = true
		second := f
		second.Version, _ = o.ledger.Record(ctx, f)
		second.Start, second.Attempts, second.Class, second.DueIn = false, f.Attempts-1, stores.ClassTransient, 0 // what the first one lent is given back
		third := f
		third.Version, _ = o.ledger.Record(ctx, second)
		third.Class = o.class
		_, _ = o.ledger.Record(ctx, third)
	})
	if refused {
		return 0, stores.ErrUnavailable
	}
	return o.ledger.Record(ctx, f)
}

// A start that was not written must not take another delivery's for its own, which has the same
// count: it would give back an attempt that failed, or not count one that has ended a process.
func TestStartOfAnotherDeliveryIsNotItsOwn(t *testing.T) {
	t.Parallel()
	for class, want := range map[stores.Class]int{stores.ClassInterrupted: 2, stores.ClassCrash: 3} {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, runs := &overtaken{ledger: newLedger(), class: class}, 0
				store.put(near("a", 1))
				_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { runs++; return errors.New("boom") }))(newMessage(suspect(t.Context()), "a"))
				if r := store.row("a"); err != nil || runs != 1 || r.failure.Attempts != want || r.failure.Class != stores.ClassTransient {
					t.Errorf("%v, %d runs, %d attempts, want %d\n%s", err, runs, r.failure.Attempts, want, store.story())
				}
			})
		})
	}
}

// Its own start must not keep it waiting until others might begin.
func TestSuspectAttemptThatConflictsIsRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs, start := newLedger(), 0, time.Now()
		_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error {
			if runs++; runs < 3 {
				return middleware.Contention(errors.New("conflict"))
			}
			return nil
		}))(newMessage(suspect(t.Context()), "a"))
		if took := time.Since(start); err != nil || runs != 3 || took != 0 {
			t.Errorf("%v, %d runs in %s\n%s", err, runs, took, store.story())
		}
	})
}

// Any of several suspects may have ended the process: none of them pays for it, unless it
// ends one alone.
func TestAttemptBesideOthersIsGivenBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		most, before int // attempts, the one beside others included
		status       stores.Status
		after        int
	}{
		{most: 1, before: 1, status: stores.StatusFailed, after: 1},
		{most: 2, before: 1, status: stores.StatusPending, after: 1},
		{most: 2, before: 2, status: stores.StatusFailed, after: 2},
		{most: 3, before: 2, status: stores.StatusPending, after: 2},
	} {
		store, runs := newLedger(), 0
		store.put(near("a", test.before))
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = test.most })
		_, err := in.Middleware(handle(func(*message.Message) error {
			runs++
			if r := store.row("a"); !r.presumed || r.failure.Class != stores.ClassCrash || r.failure.Attempts != test.before+1 {
				t.Errorf("%+v: if the process ended now, this would be left: %+v", test, r)
			}
			return errors.New("boom")
		}))(newMessage(t.Context(), "a"))
		if r := store.row("a"); err != nil || runs != 1 || r.presumed || r.status != test.status || r.failure.Attempts != test.after || r.failure.Uncounted != 0 {
			t.Errorf("%+v: %v, %d runs, %+v", test, err, runs, r)
		}
	}
}

func TestAttemptBesideOthersIsGivenBackWhenInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.put(near("a", 1))
		store.attempt = func(a stores.Attempt) stores.Attempt { return interruptedLedgerAttempt{a} }
		_, err := newInbox(t, store).Middleware(handle(fail))(newMessage(t.Context(), "a"))
		if r := store.row("a"); err != nil || r.presumed || r.failure.Attempts != 0 || r.failure.Uncounted != 1 {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// Else the process that a suspect ends would be laid at the door of the one that runs alone.
func TestNoSuspectRunsBesideOneThatRunsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store)
		store.put(near("near", 1))
		var alone, running atomic.Int32
		results := make(chan error)
		deliver := func(id string) {
			_, err := in.Middleware(handle(func(*message.Message) error {
				running.Add(1)
				defer running.Add(-1)
				if id == "near" {
					alone.Add(1)
					defer alone.Add(-1)
				}
				for range 10 {
					if running.Load() > 1 && alone.Load() > 0 {
						t.Errorf("%d run beside one that is to run alone", running.Load()-1)
					}
					<-time.After(100 * time.Millisecond)
				}
				return nil
			}))(newMessage(suspect(t.Context()), id))
			results <- err
		}
		begun := time.Now()
		for _, id := range []string{"a", "b", "near", "c", "d"} {
			go deliver(id)
			synctest.Wait()
		}
		for range 5 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("a and b, then the one near a crash, then c and d: %s", took)
		}
	})
}
