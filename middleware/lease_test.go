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

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// leasing lets the handler of an inbox run under leases of 30 s.
func leasing(change ...func(*middleware.LeaseConfig)) func(*middleware.InboxConfig) {
	return func(c *middleware.InboxConfig) {
		var l middleware.LeaseConfig
		for _, f := range change {
			f(&l)
		}
		c.LeaseByHandler = map[string]middleware.LeaseConfig{"stock": l}
		c.HandlerTimeout = time.Minute
	}
}

func stopping(l *middleware.LeaseConfig) { l.AfterCrash = middleware.CrashStop }

// outside is a service outside of the database, with what it was told.
type outside struct{ keys, writes []string }

func (o *outside) pay(m *message.Message) error {
	key, ok := middleware.IdempotencyKey(m.Context())
	if !ok {
		return errors.New("there is no key")
	}
	o.keys = append(o.keys, key)
	return middleware.OnComplete(m.Context(), func(context.Context) error {
		o.writes = append(o.writes, key)
		return nil
	})
}

func (o *outside) distinct() int {
	seen := make(map[string]bool)
	for _, key := range o.keys {
		seen[key] = true
	}
	return len(seen)
}

func (l *ledger) wants(t *testing.T, calls ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := 0
	for _, n := range l.asked {
		all += n
	}
	want := make(map[string]int)
	for _, call := range calls {
		want[call]++
	}
	for call, n := range want {
		if l.asked[call] != n {
			t.Errorf("%d calls of %s, want %d; all are %v", l.asked[call], call, n, l.asked)
		}
	}
	if all != len(calls) {
		t.Errorf("the store was asked %v, want %v", l.asked, calls)
	}
}

func TestLeaseIsTwoTransactionsAroundTheEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		in := newInbox(t, store, leasing(), end.configure)
		handler := in.Middleware(handle(func(m *message.Message) error {
			if row := store.row("a"); !row.presumed || row.failure.Holder == "" || time.Until(row.due) != 30*time.Second || store.inFlight["a"] {
				t.Errorf("while it runs its row is %+v", row)
			}
			if n := middleware.Attempt(m.Context()); n != 1 {
				t.Errorf("attempt %d", n)
			}
			return provider.pay(m)
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultCompleted {
			t.Fatal(err, end.last())
		}
		store.wants(t, "register", "look", "record", "begin", "commit")
		if len(provider.keys) != 1 || len(provider.writes) != 1 || store.row("a").status != stores.StatusCompleted {
			t.Errorf("%+v", provider)
		}
		if _, err := handler(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultDuplicate || len(provider.keys) != 1 {
			t.Error(err, end.last())
		}
	})
}

func TestLeaseIsRenewedUntilTheHandlersDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		in := newInbox(t, store, leasing(), end.configure)
		handler := in.Middleware(handle(func(m *message.Message) error {
			<-time.After(55 * time.Second)
			return provider.pay(m)
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultCompleted {
			t.Fatal(err, end.last())
		}
		if n := store.calls("extend"); n != 5 {
			t.Errorf("it was renewed %d times in 55 s", n)
		}
	})
}

// A handler that hangs gives its lease up, and when it wakes it changes nothing.
func TestHungHandlerLosesItsLeaseAndChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		in := newInbox(t, store, leasing(), end.configure)
		hang := true
		handler := in.Middleware(handle(func(m *message.Message) error {
			if hang {
				hang = false
				<-time.After(3 * time.Minute) // and heeds nothing
				return middleware.OnComplete(m.Context(), func(context.Context) error {
					t.Error("its writes are made")
					return nil
				})
			}
			if n := middleware.Attempt(m.Context()); n != 2 {
				t.Errorf("attempt %d", n)
			}
			return provider.pay(m)
		}))
		first := make(chan error, 1)
		go func() {
			_, err := handler(newMessage(t.Context(), "a"))
			first <- err
		}()
		<-time.After(time.Second)
		begun := time.Now()
		other := newInbox(t, store, leasing(), (&ends{}).configure) // in another process
		second := other.Middleware(handle(provider.pay))
		if _, err := second(newMessage(t.Context(), "a")); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited < 75*time.Second || waited > 95*time.Second {
			t.Errorf("the lease of a handler that hangs was free after %s", waited)
		}
		if err := <-first; err != nil || end.last().Result != middleware.ResultDuplicate {
			t.Error(err, end.last())
		}
		if len(provider.writes) != 1 || store.calls("extend") > 6 {
			t.Errorf("%d writes, %d renewals", len(provider.writes), store.calls("extend"))
		}
	})
}

func TestHandlersContextEndsBeforeTheLeaseDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		in := newInbox(t, store, leasing(), end.configure)
		begun := time.Now()
		handler := in.Middleware(handle(func(m *message.Message) error {
			well := store.failing("extend")
			defer well()
			<-m.Context().Done()
			if left := time.Until(store.row("a").due); left <= 0 || left > 5*time.Second {
				t.Errorf("it ends %s before the lease", left)
			}
			if cause := context.Cause(m.Context()); !errors.Is(cause, middleware.ErrLeaseLost) {
				t.Errorf("by %v", cause)
			}
			return m.Context().Err()
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultParked {
			t.Fatal(err, end.last())
		}
		if after := time.Since(begun); after > 30*time.Second {
			t.Errorf("after %s", after)
		}
	})
}

func TestHolderLearnsThatItsLeaseWasBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		in := newInbox(t, store, leasing(), end.configure)
		handler := in.Middleware(handle(func(m *message.Message) error {
			store.mu.Lock()
			row := store.rows["a"]
			row.revision, row.status = row.revision+1, stores.StatusDiscarded
			store.mu.Unlock()
			<-m.Context().Done()
			if cause := context.Cause(m.Context()); !errors.Is(cause, middleware.ErrLeaseLost) {
				t.Errorf("its context has ended by %v", cause)
			}
			return m.Context().Err()
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultFinal {
			t.Fatal(err, end.last())
		}
		if row := store.row("a"); row.status != stores.StatusDiscarded {
			t.Errorf("%+v", row)
		}
	})
}

func TestCompletionAloneIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(store *ledger) error{
		"claim":  func(*ledger) error { return stores.ErrUnavailable },
		"unsure": func(*ledger) error { return stores.ErrCommitUnknown },
		"committed": func(store *ledger) error {
			store.rows["a"] = &ledgerRow{status: stores.StatusCompleted, failure: stores.Failure{Fingerprint: store.rows["a"].failure.Fingerprint}}
			return stores.ErrCommitUnknown
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, end, provider := newLedger(), &ends{}, &outside{}
				in := newInbox(t, store, leasing(stopping), end.configure)
				failures := 0
				store.fault = func(call string) error {
					if failures < 2 && (name == "claim" && call == "begin" || name != "claim" && call == "commit") {
						failures++
						return fault(store)
					}
					return nil
				}
				if _, err := in.Middleware(handle(provider.pay))(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultCompleted {
					t.Fatal(err, end.last())
				}
				if len(provider.keys) != 1 || end.last().Runs != 1 {
					t.Errorf("the effect was made %d times, in %d runs", len(provider.keys), end.last().Runs)
				}
			})
		})
	}
}

// While the database is away nobody can take the lease over either.
func TestDatabaseThatIsAwayLongerThanTheLeaseLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		in := newInbox(t, store, leasing(), end.configure)
		handler := in.Middleware(handle(func(m *message.Message) error {
			well := store.failing("look", "record", "begin", "commit", "extend", "resolve")
			time.AfterFunc(2*time.Minute, well)
			return provider.pay(m)
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultCompleted {
			t.Fatal(err, end.last())
		}
		if len(provider.keys) != 1 || len(provider.writes) != 1 {
			t.Errorf("%+v", provider)
		}
	})
}

func TestFailedWritesOfACompletionFailTheAttempt(t *testing.T) {
	t.Parallel()
	for stops, class := range map[bool]stores.Class{false: stores.ClassTransient, true: stores.ClassTransient} {
		synctest.Test(t, func(t *testing.T) {
			store, end := newLedger(), &ends{}
			in := newInbox(t, store, leasing(func(l *middleware.LeaseConfig) {
				if stops {
					stopping(l)
				}
			}), end.configure)
			effects, tries := 0, 0
			handler := in.Middleware(handle(func(m *message.Message) error {
				effects++
				return middleware.OnComplete(m.Context(), func(context.Context) error {
					tries++
					panic("boom")
				})
			}))
			if _, err := handler(newMessage(t.Context(), "a")); err != nil {
				t.Fatal(err)
			}
			if e := end.last(); e.Class != class || effects != 1 || tries != 3 || !strings.Contains(e.Err.Error(), "OnComplete panicked: boom") {
				t.Errorf("%d effects, %d tries, ended as %+v", effects, tries, e)
			}
		})
	}
}

// A completion that contends is tried again without the handler, whose effect has happened, and
// fails the attempt in the end.
func TestContentionOfACompletionDoesNotRepeatTheEffect(t *testing.T) {
	t.Parallel()
	for name, contends := range map[string]struct{ tries, want int }{"for a while": {2, 3}, "for good": {10, 3}} {
		for _, at := range []string{"commit", "OnComplete"} {
			t.Run(name+", "+at, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, end := newLedger(), &ends{}
					in := newInbox(t, store, leasing(stopping), end.configure)
					effects, tries := 0, 0
					contention := func() error {
						if tries++; tries <= contends.tries {
							return stores.ErrTxContended
						}
						return nil
					}
					if at == "commit" {
						store.fault = func(call string) error {
							if call != "commit" {
								return nil
							}
							if err := contention(); err != nil {
								return fmt.Errorf("%w: %w", stores.ErrNotCommitted, err)
							}
							return nil
						}
					}
					handler := in.Middleware(handle(func(m *message.Message) error {
						effects++
						return middleware.OnComplete(m.Context(), func(context.Context) error {
							if at == "commit" {
								return nil
							}
							return contention()
						})
					}))
					if _, err := handler(newMessage(t.Context(), "a")); err != nil {
						t.Fatal(err)
					}
					e, result, class := end.last(), middleware.ResultCompleted, stores.Class("")
					if contends.tries >= contends.want {
						result, class = middleware.ResultParked, stores.ClassContention
					}
					if e.Result != result || e.Class != class || effects != 1 || tries != contends.want {
						t.Errorf("%d effects, %d tries, ended as %+v", effects, tries, e)
					}
				})
			})
		}
	}
}

// leasedBefore is the row of a message whose process has died under a lease.
func leasedBefore(id string, attempts int) stores.Failure {
	f := failedBefore(id, stores.PlacementRedelivered, attempts)
	f.Start, f.Holder, f.Class, f.DueIn = true, "dead/1", stores.ClassInterrupted, 10*time.Second
	f.Content = &stores.Content{}
	return f
}

func TestMessageOfADeadProcessIsRunAgainOrStopped(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, end, provider := newLedger(), &ends{}, &outside{}
			store.put(leasedBefore("a", 1))
			lease := leasing()
			if stop {
				lease = leasing(stopping)
			}
			begun := time.Now()
			_, err := newInbox(t, store, lease, end.configure).Middleware(handle(provider.pay))(newMessage(t.Context(), "a"))
			if err != nil || time.Since(begun) < 10*time.Second {
				t.Fatal(err, time.Since(begun))
			}
			e := end.last()
			if !stop && (e.Result != middleware.ResultCompleted || len(provider.keys) != 1) {
				t.Errorf("run again: %+v", e)
			}
			if stop && (e.Result != middleware.ResultFailed || e.Class != stores.ClassUnconfirmed || e.Attempts != 1 || len(provider.keys) > 0 || !e.Final) {
				t.Errorf("stopped: %+v", e)
			}
			if row := store.row("a"); stop && (row.status != stores.StatusFailed || row.failure.Content.State != stores.ContentKept) {
				t.Errorf("%+v", row)
			}
		})
	}
}

func TestMessageIsNotRunWhenItsKeyMayBeForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		in := newInbox(t, store, leasing(func(l *middleware.LeaseConfig) { l.KeyLifetime = time.Hour }), end.configure, redelivered)
		handler := in.Middleware(handle(func(m *message.Message) error {
			_ = provider.pay(m)
			return middleware.RetryAfter(errors.New("boom"), 58*time.Minute)
		}))
		var err error
		for range 2 {
			if _, err = handler(newMessage(t.Context(), "a")); err == nil {
				t.Fatal("acked")
			}
			<-time.After(58 * time.Minute)
		}
		if _, err = handler(newMessage(t.Context(), "a")); err != nil {
			t.Fatal(err)
		}
		if e := end.last(); len(provider.keys) != 2 || provider.distinct() != 1 || e.Class != stores.ClassUnconfirmed || e.Attempts != 2 || !strings.Contains(e.Err.Error(), "KeyLifetime is 1h0m0s") {
			t.Errorf("%d runs, then %+v", len(provider.keys), e)
		}
	})
}

// What a worker has reserved may wait, and its key be forgotten meanwhile.
func TestParkedMessageWhoseKeyIsForgottenWhileItWaitsIsNotRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		store.put(failedBefore("a", stores.PlacementParked, 1))
		<-time.After(57 * time.Minute)
		in := newInbox(t, store, leasing(func(l *middleware.LeaseConfig) { l.KeyLifetime = time.Hour }), end.configure)
		well := store.failing("record")
		time.AfterFunc(4*time.Minute, well)
		work(t, in, provider.pay, func() {
			waitUntil(t, func() bool { return store.row("a").status != stores.StatusPending })
		})
		if e := end.last(); len(provider.keys) > 0 || e.Class != stores.ClassUnconfirmed || !strings.Contains(e.Err.Error(), "KeyLifetime is 1h0m0s") {
			t.Errorf("%d runs, then %+v", len(provider.keys), e)
		}
	})
}

func TestUnknownOutcomesStopForAnOperator(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler func(*message.Message) error
		class   stores.Class
	}{
		"says so":          {func(*message.Message) error { return middleware.Unconfirmed(errors.New("boom")) }, stores.ClassUnconfirmed},
		"knows better":     {fail, stores.ClassTransient},
		"client's timeout": {func(*message.Message) error { return context.DeadlineExceeded }, stores.ClassUnconfirmed},
		"too late":         {func(*message.Message) error { <-time.After(2 * time.Minute); return nil }, stores.ClassUnconfirmed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, end := newLedger(), &ends{}
				in := newInbox(t, store, leasing(stopping), end.configure)
				if _, err := in.Middleware(handle(test.handler))(newMessage(t.Context(), "a")); err != nil {
					t.Fatal(err)
				}
				if e := end.last(); e.Class != test.class || e.Final != (test.class == stores.ClassUnconfirmed) {
					t.Errorf("%+v", e)
				}
			})
		})
	}
	t.Run("panic", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store, end := newLedger(), &ends{}
			in := newInbox(t, store, leasing(stopping), end.configure)
			func() {
				defer func() { _ = recover() }()
				_, _ = in.Middleware(handle(func(*message.Message) error { panic("boom") }))(newMessage(t.Context(), "a"))
			}()
			if row := store.row("a"); row.status != stores.StatusFailed || row.failure.Class != stores.ClassUnconfirmed {
				t.Errorf("%+v", row)
			}
		})
	})
}

func TestLostReplyToAStartThatWasAnothers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		in := newInbox(t, store, leasing(), end.configure)
		lost := false
		store.fault = func(call string) error {
			if call != "record" || lost {
				return nil
			}
			lost = true
			go func() { // another process has counted the same
				f := leasedBefore("a", 1)
				f.DueIn = 30 * time.Second
				store.put(f)
			}()
			return stores.ErrUnavailable
		}
		begun := time.Now()
		if _, err := in.Middleware(handle(provider.pay))(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultCompleted {
			t.Fatal(err, end.last())
		}
		if waited := time.Since(begun); waited < 30*time.Second || len(provider.keys) != 1 {
			t.Errorf("it has taken another's lease after %s, in %d runs", waited, len(provider.keys))
		}
	})
}

func TestLeasedMessageBehindAnotherOfItsKeyDoesNotRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		in := newInbox(t, store, ordered, leasing(), end.configure)
		f := failedBefore("first", stores.PlacementParked, 1)
		f.OrderKey, f.DueIn = []byte("x"), time.Hour
		store.put(f)
		if _, err := in.Middleware(handle(provider.pay))(ofKey(t, "second", "x", false)); err != nil || end.last().Result != middleware.ResultParked {
			t.Fatal(err, end.last())
		}
		if row := store.row("second"); len(provider.keys) > 0 || row.failure.Attempts != 0 || row.presumed || row.failure.Class != stores.ClassOrder {
			t.Errorf("%+v", row)
		}
	})
}

func TestRetryWorkerRunsUnderLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		in := newInbox(t, store, leasing(), end.configure)
		runs := 0
		w := work(t, in, func(m *message.Message) error {
			if runs++; runs < 3 {
				_ = provider.pay(m)
				return errors.New("boom")
			}
			<-time.After(45 * time.Second)
			return provider.pay(m)
		}, func() {
			if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a")); err != nil {
				t.Error(err)
			}
			waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted })
		})
		if s := w.Stats(); s.Completed != 1 || s.Failed != 2 || provider.distinct() != 1 || len(provider.writes) != 1 {
			t.Errorf("%+v, %+v", s, provider)
		}
	})
}

func TestLeaseBelongsToOneMessage(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, leasing())
	plain := newInbox(t, newLedger())
	var kept context.Context
	_, err := in.Middleware(handle(func(m *message.Message) error {
		kept = m.Context()
		published := newMessage(m.Context(), "b")
		_, err := plain.Middleware(handle(func(inner *message.Message) error {
			if key, ok := middleware.IdempotencyKey(inner.Context()); ok {
				t.Errorf("another message has the key %s", key)
			}
			if err := middleware.OnComplete(inner.Context(), nil); !errors.Is(err, stores.ErrNoLease) {
				t.Error(err)
			}
			return nil
		}))(published)
		return err
	}))(newMessage(t.Context(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := middleware.OnComplete(kept, nil); err == nil {
		t.Error("a run that is over takes writes")
	}
	if _, ok := middleware.IdempotencyKey(t.Context()); ok {
		t.Error("there is a key without a lease")
	}
}

func TestLeaseConfigErrorsNameTheFix(t *testing.T) {
	t.Parallel()
	c := middleware.InboxConfig{Service: "s", LeaseByHandler: map[string]middleware.LeaseConfig{
		"a": {TTL: -1}, "b": {AfterCrash: "perhaps"}, "c": {KeyLifetime: time.Second}, "d": {TTL: time.Hour},
	}}
	_, err := middleware.NewInbox(newLedger(), c)
	for _, part := range []string{`LeaseByHandler["a"].TTL`, `LeaseByHandler["b"].AfterCrash`, `LeaseByHandler["c"].KeyLifetime is 1s, and HandlerTimeout is 30s`, `LeaseByHandler["d"].TTL is 1h0m0s, and Hold.Limit is 5m0s`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s is missing in:\n%v", part, err)
		}
	}
	_, err = middleware.NewInbox(&scriptedStore{}, middleware.InboxConfig{Service: "s", LeaseByHandler: map[string]middleware.LeaseConfig{"a": {}}})
	if err == nil || !strings.Contains(err.Error(), "LeaseInbox") {
		t.Error(err)
	}
}

// A worker counts a suspect message before its codec is asked, and then it has no lease yet.
func TestEncodedMessageOfADeadProcessGetsALease(t *testing.T) {
	t.Parallel()
	for _, stop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, end, provider := newLedger(), &ends{}, &outside{}
			f := leasedBefore("a", 1)
			f.Placement = stores.PlacementParked
			f.Content = &stores.Content{State: stores.ContentKept, Codec: "plain", UUID: "a", Payload: []byte("payload of a")}
			store.put(f)
			lease := leasing()
			if stop {
				lease = leasing(stopping)
			}
			plain := func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil }
			in := newInbox(t, store, lease, end.configure, func(c *middleware.InboxConfig) {
				c.Keep.Codec = &middleware.Codec{Name: "plain", Encode: plain, Decode: plain}
			})
			work(t, in, func(m *message.Message) error {
				if row := store.row("a"); row.failure.Holder == "" || !row.presumed {
					t.Errorf("it runs without a lease: %+v", row)
				}
				return provider.pay(m)
			}, func() {
				waitUntil(t, func() bool { return store.row("a").status != stores.StatusPending })
			})
			row := store.row("a")
			if !stop && (row.status != stores.StatusCompleted || len(provider.keys) != 1) {
				t.Errorf("run again: %+v", row)
			}
			if stop && (row.status != stores.StatusFailed || row.failure.Class != stores.ClassUnconfirmed || len(provider.keys) != 0) {
				t.Errorf("stopped: %+v", row)
			}
		})
	}
}
