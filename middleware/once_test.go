package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// shop is three services outside of the database, which remember what they were asked.
type shop struct {
	mu   sync.Mutex
	keys map[string][]string
	fail map[string]error // once, after the effect
}

func newShop() *shop { return &shop{keys: make(map[string][]string), fail: make(map[string]error)} }

func (s *shop) step(m *message.Message, name string) (receipt string, err error) {
	return middleware.Once(m.Context(), name, func(ctx context.Context) (string, error) {
		key, _ := middleware.IdempotencyKey(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keys[name] = append(s.keys[name], key)
		err := s.fail[name]
		delete(s.fail, name)
		return fmt.Sprintf("%s %d", name, len(s.keys[name])), err
	})
}

// order charges, ships and mails.
func (s *shop) order(m *message.Message) error {
	for _, name := range []string{"charge", "ship", "mail"} {
		if receipt, err := s.step(m, name); err != nil || !strings.HasPrefix(receipt, name) {
			return errors.Join(err, errors.New("no "+name))
		}
	}
	return nil
}

func TestStepOnRecordIsNotRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, shop := newLedger(), &ends{}, newShop()
		in := newInbox(t, store, leasing(), end.configure, redelivered)
		shop.fail["ship"] = errors.New("boom")
		var receipts []string
		handler := in.Middleware(handle(func(m *message.Message) error {
			receipt, err := shop.step(m, "charge")
			receipts = append(receipts, receipt)
			if err == nil {
				_, err = shop.step(m, "ship")
			}
			return err
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err == nil {
			t.Fatal("acked")
		}
		store.wants(t, "register", "look", "record", "step", "record") // nothing is read where nothing can be
		<-time.After(time.Minute)
		store.asked = make(map[string]int)
		if _, err := handler(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultCompleted {
			t.Fatal(err, end.last())
		}
		store.wants(t, "look", "record", "steps", "step", "begin", "commit")
		if len(shop.keys["charge"]) != 1 || !slices.Equal(receipts, []string{"charge 1", "charge 1"}) {
			t.Errorf("charged %d times, with the receipts %q", len(shop.keys["charge"]), receipts)
		}
		if keys := shop.keys["ship"]; len(keys) != 2 || keys[0] != keys[1] || keys[0] == shop.keys["charge"][0] {
			t.Errorf("the keys are %v", shop.keys)
		}
	})
}

// Wherever a process dies, the next one resumes: only a step whose record is missing runs
// again, with its key.
func TestStepsResumeWhereTheProcessDied(t *testing.T) {
	t.Parallel()
	for died, want := range map[string][3]int{"before charge": {1, 1, 1}, "charge": {2, 1, 1}, "ship": {1, 2, 1}, "mail": {1, 1, 2}} {
		t.Run(died, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, end, shop := newLedger(), &ends{}, newShop()
				in := newInbox(t, store, leasing(), end.configure)
				gone := errors.New("the process is gone")
				if died == "before charge" {
					store.put(leasedBefore("a", 1))
				} else {
					shop.fail[died] = gone
				}
				w := work(t, in, shop.order, func() {
					if died != "before charge" {
						_, _ = in.Middleware(handle(func(m *message.Message) error {
							err := shop.order(m)
							store.mu.Lock() // as if nothing more had been said
							store.rows["a"].due = time.Now().Add(time.Second)
							store.mu.Unlock()
							return err
						}))(newMessage(t.Context(), "a"))
					} else if _, err := in.Middleware(handle(shop.order))(newMessage(t.Context(), "a")); err != nil {
						t.Error(err)
					}
					waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted })
				})
				_ = w
				for i, name := range []string{"charge", "ship", "mail"} {
					keys := shop.keys[name]
					if len(keys) != want[i] || len(slices.Compact(slices.Clone(keys))) != 1 {
						t.Errorf("%s ran with %v, want %d of one key", name, keys, want[i])
					}
				}
			})
		})
	}
}

func TestStepsMayRunSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, shop := newLedger(), &ends{}, newShop()
		handler := newInbox(t, store, leasing(), end.configure).Middleware(handle(func(m *message.Message) error {
			var all sync.WaitGroup
			for _, name := range []string{"charge", "ship", "mail"} {
				all.Go(func() {
					if _, err := shop.step(m, name); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if n := len(store.row("a").steps); n != 3 {
				t.Errorf("%d steps are on record", n)
			}
			return nil
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err != nil || end.last().Result != middleware.ResultCompleted {
			t.Fatal(err, end.last())
		}
	})
}

// A name stands for one step in an attempt, whoever asks for it, also where a middleware inside the
// inbox runs the handler again. The next attempt may use it again.
func TestOneNameIsOneStepOfAnAttempt(t *testing.T) {
	t.Parallel()
	for name, recorded := range map[string]bool{"fresh": false, "on record": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, end := newLedger(), &ends{}
				if recorded {
					store.put(leasedBefore("a", 1))
					store.rows["a"].steps = []stores.Step{{Name: "charge", Result: []byte("1")}}
				}
				var runs, results, misused atomic.Int32
				once := func(ctx context.Context) error {
					got, err := middleware.Once(ctx, "charge", func(context.Context) (int, error) {
						runs.Add(1)
						<-time.After(time.Second)
						return 1, nil
					})
					switch {
					case errors.Is(err, middleware.ErrStepMisused):
						misused.Add(1)
					case err == nil && got == 1:
						results.Add(1)
					default:
						t.Error(got, err)
					}
					return err
				}
				again := wmiddleware.Retry{MaxRetries: 1}
				handler := newInbox(t, store, leasing(), end.configure).Middleware(again.Middleware(handle(func(m *message.Message) error {
					var all sync.WaitGroup
					for range 20 {
						all.Go(func() { _ = once(m.Context()) })
					}
					all.Wait()
					return once(m.Context())
				})))
				if _, err := handler(newMessage(t.Context(), "a")); err != nil {
					t.Fatal(err)
				}
				want := int32(1)
				if recorded {
					want = 0
				}
				if runs.Load() != want || results.Load() != 1 || misused.Load() != 41 || end.last().Class != stores.ClassConduct {
					t.Errorf("%d runs, %d results, %d refused, %+v", runs.Load(), results.Load(), misused.Load(), end.last())
				}
				work(t, newInbox(t, store, leasing()), func(m *message.Message) error { return once(m.Context()) }, func() {
					waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted })
				})
				if runs.Load() != want || results.Load() != 2 || misused.Load() != 41 {
					t.Errorf("after another attempt %d runs, %d results, %d refused", runs.Load(), results.Load(), misused.Load())
				}
			})
		})
	}
}

func TestMisusedStepDoesNotRun(t *testing.T) {
	t.Parallel()
	ran := func(context.Context) (int, error) { return 0, errors.New("it ran") }
	for name, misuse := range map[string]func(ctx context.Context) error{
		"two of one name": func(ctx context.Context) error {
			if _, err := middleware.Once(ctx, "a", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return err
			}
			_, err := middleware.Once(ctx, "a", ran)
			return err
		},
		"one that has failed": func(ctx context.Context) error {
			if _, err := middleware.Once(ctx, "a", ran); err == nil || err.Error() != "it ran" {
				return err
			}
			_, err := middleware.Once(ctx, "a", ran)
			return err
		},
		"inside of another": func(ctx context.Context) error {
			_, err := middleware.Once(ctx, "a", func(ctx context.Context) (int, error) { return middleware.Once(ctx, "b", ran) })
			return err
		},
		"OnComplete inside": func(ctx context.Context) error {
			_, err := middleware.Once(ctx, "a", func(ctx context.Context) (int, error) {
				return 0, middleware.OnComplete(ctx, func(context.Context) error { return nil })
			})
			return err
		},
		"no name": func(ctx context.Context) error { _, err := middleware.Once(ctx, "", ran); return err },
		"a long name": func(ctx context.Context) error {
			_, err := middleware.Once(ctx, strings.Repeat("a", 201), ran)
			return err
		},
		"NUL in a name": func(ctx context.Context) error { _, err := middleware.Once(ctx, "a\x00", ran); return err },
		"no UTF-8":      func(ctx context.Context) error { _, err := middleware.Once(ctx, "\xff", ran); return err },
		"too many": func(ctx context.Context) (err error) {
			for i := 0; err == nil; i++ {
				_, err = middleware.Once(ctx, fmt.Sprint(i), func(context.Context) (int, error) { return i, nil })
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, end := newLedger(), &ends{}
				var err error
				_, _ = newInbox(t, store, leasing(), end.configure).Middleware(handle(func(m *message.Message) error {
					err = misuse(m.Context())
					return err
				}))(newMessage(t.Context(), "a"))
				if !errors.Is(err, middleware.ErrStepMisused) || end.last().Class != stores.ClassConduct {
					t.Errorf("%v, and it has ended as %+v", err, end.last())
				}
			})
		})
	}
}

func TestStepNeedsALease(t *testing.T) {
	t.Parallel()
	_, err := newInbox(t, newLedger()).Middleware(handle(func(m *message.Message) error {
		_, err := middleware.Once(m.Context(), "a", func(context.Context) (int, error) { return 0, errors.New("it ran") })
		if !errors.Is(err, stores.ErrNoLease) {
			t.Error(err)
		}
		return nil
	}))(newMessage(t.Context(), "a"))
	if err != nil {
		t.Fatal(err)
	}
}

func TestStepPublishesNothing(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	in := s.inbox(leasing(), func(c *middleware.InboxConfig) { c.Handler = "stock" })
	_, err := in.Middleware(handle(func(m *message.Message) error {
		_, err := middleware.Once(m.Context(), "a", func(ctx context.Context) (int, error) {
			return 0, outbox.Publisher("kafka").Publish("t", message.NewMessageWithContext(ctx, "b", nil))
		})
		if !errors.Is(err, outbox.ErrNoAttempt) {
			t.Error(err)
		}
		return nil
	}))(newMessage(t.Context(), "a"))
	if err != nil {
		t.Fatal(err)
	}
}

// A result that cannot be kept is a mistake that the next attempt would repeat, and the effect
// with it.
func TestResultThatCannotBeKeptIsUnconfirmed(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(context.Context) error{
		"too large": func(ctx context.Context) error {
			_, err := middleware.Once(ctx, "a", func(context.Context) (string, error) { return strings.Repeat("x", stores.MaxStepResultBytes-1), nil })
			return err
		},
		"no JSON": func(ctx context.Context) error {
			_, err := middleware.Once(ctx, "a", func(context.Context) (func(), error) { return func() {}, nil })
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, end := newLedger(), &ends{}
			_, err := newInbox(t, store, leasing(), end.configure).Middleware(handle(func(m *message.Message) error { return step(m.Context()) }))(newMessage(t.Context(), "a"))
			if e := end.last(); err != nil || e.Class != stores.ClassUnconfirmed || !errors.Is(e.Err, middleware.ErrStepResult) || len(store.row("a").steps) > 0 {
				t.Errorf("%s: %v, %+v", name, err, e)
			}
		})
	}
}

func TestFirstAttemptGetsWhatLaterOnesGet(t *testing.T) {
	t.Parallel()
	type receipt struct {
		ID     string
		hidden int
	}
	store := newLedger()
	_, err := newInbox(t, store, leasing()).Middleware(handle(func(m *message.Message) error {
		got, err := middleware.Once(m.Context(), "a", func(context.Context) (receipt, error) { return receipt{"b", 1}, nil })
		if got != (receipt{ID: "b"}) {
			t.Errorf("%+v", got)
		}
		return err
	}))(newMessage(t.Context(), "a"))
	if err != nil {
		t.Fatal(err)
	}
}

func TestStepOnRecordOfAnotherType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		store.put(leasedBefore("a", 1))
		store.rows["a"].steps = []stores.Step{{Name: "a", Result: []byte(`"a receipt"`)}}
		_, err := newInbox(t, store, leasing(), end.configure).Middleware(handle(func(m *message.Message) error {
			_, err := middleware.Once(m.Context(), "a", func(context.Context) (int, error) { return 0, errors.New("it ran") })
			return err
		}))(newMessage(t.Context(), "a"))
		if e := end.last(); err != nil || !errors.Is(e.Err, middleware.ErrStepResult) || e.Class != stores.ClassTransient {
			t.Errorf("%v, %+v", err, e)
		}
	})
}

// The effect is not repeated because its record was not answered, while the handler's time lasts.
func TestRecordOfAStepIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, end, shop := newLedger(), &ends{}, newShop()
			tries := 0
			store.fault = func(call string) error {
				if call != "step" {
					return nil
				}
				if tries++; tries > 3 {
					return nil
				}
				if row := store.rows["a"]; written {
					row.steps = []stores.Step{{Name: "charge", Result: []byte(`"charge 1"`)}}
				}
				return fmt.Errorf("%w: no answer", stores.ErrUnavailable)
			}
			_, err := newInbox(t, store, leasing(), end.configure).Middleware(handle(shop.order))(newMessage(t.Context(), "a"))
			if err != nil || end.last().Result != middleware.ResultCompleted || tries != 6 || len(shop.keys["charge"]) != 1 {
				t.Errorf("%v, %+v, %d tries, charged %d times", err, end.last(), tries, len(shop.keys["charge"]))
			}
		})
	}
}

func TestJournalThatIsAwayEndsTheAttempt(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"step", "steps"} {
		for _, stop := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store, end, shop := newLedger(), &ends{}, newShop()
				want := stores.ClassInterrupted
				lease := leasing()
				if stop {
					lease, want = leasing(stopping), stores.ClassUnconfirmed
				}
				f := leasedBefore("a", 1)
				f.Start, f.Class = false, stores.ClassTransient
				store.put(f)
				defer store.failing(call)()
				_, err := newInbox(t, store, lease, end.configure).Middleware(handle(shop.order))(newMessage(t.Context(), "a"))
				if e := end.last(); err != nil || e.Class != want || !errors.Is(e.Err, middleware.ErrJournal) || len(shop.keys["ship"]) > 0 {
					t.Errorf("%s, stop %t: %v, %+v", call, stop, err, e)
				}
			})
		}
	}
}

// Whoever has lost the lease records no step, and runs no other.
func TestHolderBeforeRecordsNoStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, shop := newLedger(), &ends{}, newShop()
		var errs []error
		_, err := newInbox(t, store, leasing(), end.configure).Middleware(handle(func(m *message.Message) error {
			_, first := middleware.Once(m.Context(), "slow", func(context.Context) (int, error) {
				store.mu.Lock()
				defer store.mu.Unlock()
				store.rows["a"].revision++ // broken
				store.rows["a"].status = stores.StatusDiscarded
				return 1, nil
			})
			<-m.Context().Done()
			_, second := shop.step(m, "charge")
			errs = []error{first, second}
			return second
		}))(newMessage(t.Context(), "a"))
		if err != nil || end.last().Result != middleware.ResultFinal {
			t.Error(err, end.last())
		}
		for _, err := range errs {
			if !errors.Is(err, middleware.ErrLeaseLost) {
				t.Error(err)
			}
		}
		if len(store.row("a").steps) > 0 || len(shop.keys) > 0 {
			t.Errorf("%+v, %v", store.row("a").steps, shop.keys)
		}
	})
}

// sleepy stands still when it has read the journal.
type sleepy struct{ *ledger }

func (s sleepy) Steps(ctx context.Context, l stores.HeldLease) ([]stores.Step, error) {
	steps, err := s.ledger.Steps(ctx, l)
	<-time.After(40 * time.Second)
	return steps, err
}

// While a process stands still others may do the step, and complete the message. What it has
// read before says nothing then.
func TestStepDoesNotBeginAfterTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, shop := sleepy{newLedger()}, &ends{}, newShop()
		f := leasedBefore("a", 1)
		f.Start, f.Class = false, stores.ClassTransient
		store.put(f)
		handler := newInbox(t, store, leasing(), end.configure).Middleware(handle(func(m *message.Message) error {
			defer store.failing("extend")()
			_, err := shop.step(m, "charge")
			return err
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err != nil {
			t.Fatal(err)
		}
		if e := end.last(); len(shop.keys) > 0 || !errors.Is(e.Err, middleware.ErrLeaseLost) {
			t.Errorf("%v, %+v", shop.keys, e)
		}
	})
}

func TestStepThatHasNotReturnedIsNotRecorded(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			store := newLedger()
			over := make(chan struct{})
			go func() {
				defer close(over)
				defer func() { _ = recover() }()
				_, _ = newInbox(t, store, leasing()).Middleware(handle(func(m *message.Message) error {
					_, err := middleware.Once(m.Context(), "a", func(context.Context) (int, error) { ends(); return 1, nil })
					return err
				}))(newMessage(t.Context(), "a"))
			}()
			<-over
			if row := store.row("a"); len(row.steps) > 0 || row.failure.Class != stores.ClassPanic {
				t.Errorf("%s: %+v", name, row)
			}
		})
	}
}

// What a goroutine does that outlives its handler belongs to no attempt.
func TestStepLeftBehindIsNotRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		begun, over, ended := make(chan struct{}), make(chan struct{}), make(chan error)
		_, err := newInbox(t, store, leasing(), end.configure).Middleware(handle(func(m *message.Message) error {
			ctx := m.Context()
			go func() {
				_, err := middleware.Once(ctx, "a", func(context.Context) (int, error) { close(begun); <-over; return 1, nil })
				ended <- err
				_, err = middleware.Once(ctx, "b", func(context.Context) (int, error) { return 1, nil })
				ended <- err
			}()
			<-begun
			return nil
		}))(newMessage(t.Context(), "a"))
		if err != nil || end.last().Result != middleware.ResultCompleted {
			t.Fatal(err, end.last())
		}
		close(over)
		if err := <-ended; !errors.Is(err, middleware.ErrJournal) {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, middleware.ErrStepMisused) {
			t.Error(err)
		}
		if n := store.calls("step"); n > 0 {
			t.Errorf("%d records", n)
		}
	})
}
