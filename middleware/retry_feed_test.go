package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// scriptedRetries is a scriptedStore with a scripted stores.Retries.
type scriptedRetries struct {
	scriptedStore

	due      func(n int, q stores.DueQuery) ([]stores.Retry, error) // n counts from 1
	mine     sync.Mutex
	queries  []stores.DueQuery
	released []stores.Retry
	renewal  error // of Renew
}

func (s *scriptedRetries) Due(_ context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	s.mine.Lock()
	defer s.mine.Unlock()
	s.queries = append(s.queries, q)
	return s.due(len(s.queries), q)
}

func (s *scriptedRetries) Renew(context.Context, []stores.Retry, time.Duration) error {
	return s.renewal
}

func (s *scriptedRetries) Release(_ context.Context, r []stores.Retry) error {
	s.mine.Lock()
	defer s.mine.Unlock()
	s.released = append(s.released, r...)
	return nil
}

func (*scriptedRetries) Backlog(context.Context, int) ([]stores.Backlog, error) { return nil, nil }

func (s *scriptedRetries) asked() []stores.DueQuery {
	s.mine.Lock()
	defer s.mine.Unlock()
	return s.queries
}

func retriesOf(q stores.DueQuery, n int) []stores.Retry {
	all := make([]stores.Retry, n)
	for i := range all {
		id := fmt.Sprint(i)
		all[i] = stores.Retry{
			Key:     stores.Key{Consumer: q.Consumer, ID: []byte("u:" + id)},
			State:   stores.FailureState{Version: 1, Status: stores.StatusPending, Placement: stores.PlacementParked, Attempts: 1},
			Content: stores.Content{State: stores.ContentKept, UUID: id, Payload: []byte("payload of " + id)},
		}
	}
	return all
}

// Full batches that are run quickly grow, to ask seldom, up to a bound; slow ones
// shrink, so that nothing waits in them for long.
func TestBatchesFollowTheSpeedOfTheHandler(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes time.Duration
		want  func(limits []int) bool
	}{
		"quick": {time.Millisecond, func(l []int) bool { return l[0] == 4 && l[len(l)-1] > 256 && l[len(l)-1] <= 512 }},
		"slow":  {5 * time.Second, func(l []int) bool { return l[0] == 4 && l[len(l)-1] == 4 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &scriptedRetries{due: func(_ int, q stores.DueQuery) ([]stores.Retry, error) { return retriesOf(q, q.Limit), nil }}
				work(t, newInbox(t, store), func(*message.Message) error { <-time.After(test.takes); return nil },
					func() { <-time.After(max(time.Second, 10*test.takes) + test.takes/2) }, // while they run
					func(c *middleware.RetryWorkerConfig) { c.Concurrency = 4 })
				var limits []int
				for _, q := range store.asked() {
					limits = append(limits, q.Limit)
				}
				if !test.want(limits) {
					t.Errorf("%v", limits)
				}
			})
		})
	}
}

// What waited in its batch until half of its reservation was over, because that could not be
// renewed, could be run by two.
func TestLateMessagesAreGivenBack(t *testing.T) {
	t.Parallel()
	for name, renewal := range map[string]error{"renewed": nil, "not renewed": stores.ErrUnavailable} {
		t.Run(name, func(t *testing.T) { t.Parallel(); late(t, renewal) })
	}
}

func late(t *testing.T, renewal error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedRetries{renewal: renewal, due: func(n int, q stores.DueQuery) ([]stores.Retry, error) {
			if n > 1 {
				return nil, nil
			}
			return retriesOf(q, 8), nil
		}}
		runs := 0
		w := work(t, newInbox(t, store), func(*message.Message) error {
			runs++
			<-time.After(25 * time.Second) // just below the handler's deadline
			return nil
		}, func() { <-time.After(10 * time.Minute) }, func(c *middleware.RetryWorkerConfig) { c.Concurrency = 1 })
		reserve := store.asked()[0].Reserve
		want := 8
		if renewal != nil {
			want = int(reserve/2/(25*time.Second)) + 1
		}
		if runs != want || len(store.released) != 8-want || w.Stats().Skipped[middleware.SkipLate] != 8-want {
			t.Errorf("%d runs in a reservation of %s, %d released, %+v", runs, reserve, len(store.released), w.Stats())
		}
	})
}

func TestStopInTheMiddleOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedRetries{due: func(n int, q stores.DueQuery) ([]stores.Retry, error) {
			if n > 1 {
				return nil, nil
			}
			return retriesOf(q, 8), nil
		}}
		completed := 0
		start := time.Now()
		w := work(t, newInbox(t, store), func(*message.Message) error {
			<-time.After(10 * time.Second)
			completed++
			return nil
		}, func() { <-time.After(15 * time.Second) }, func(c *middleware.RetryWorkerConfig) { c.Concurrency = 1 })
		if took := time.Since(start); completed != 2 || took != 20*time.Second {
			t.Errorf("%d completed, stopped after %s: it must wait for those that run, and begin no more", completed, took)
		}
		if s := w.Stats(); len(store.released) != 6 || s.Skipped[middleware.SkipStopping] != 6 || s.Completed != 2 || s.Taken != 8 {
			t.Errorf("%d released, %+v", len(store.released), s)
		}
	})
}

func TestUnreadableRowDoesNotStopItsBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedRetries{due: func(n int, q stores.DueQuery) ([]stores.Retry, error) {
			if n > 1 {
				return nil, nil
			}
			batch := retriesOf(q, 3)
			batch[1].Err = errors.New("metadata is no JSON")
			return batch, nil
		}}
		w := work(t, newInbox(t, store), func(m *message.Message) error {
			if m.UUID == "1" {
				t.Error("it ran")
			}
			return nil
		}, func() { <-time.After(10 * time.Second) })
		if s := w.Stats(); s.Completed != 2 || s.Failed != 1 || len(store.recorded) != 1 {
			t.Fatalf("%+v, %+v", s, store.recorded)
		}
		if f := store.recorded[0]; f.Class != stores.ClassUnreadable || f.Attempts != 2 || f.Content != nil || f.Placement != stores.PlacementParked || f.Version != 1 {
			t.Errorf("%+v", f)
		}
	})
}

func TestWorkerBacksOffWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedRetries{due: func(int, stores.DueQuery) ([]stores.Retry, error) { return nil, stores.ErrUnavailable }}
		work(t, newInbox(t, store), succeed, func() { <-time.After(10 * time.Minute) })
		if n := len(store.asked()); n < 20 || n > 50 {
			t.Errorf("asked %d times in 10 min", n)
		}
	})
}

// Found at the next poll at the latest, which may be long after it was due.
func TestWorkerWakesWhenAMessageParkedHereIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Handler = ""
			c.Retry.Backoff = middleware.BackoffConfig{Min: 10 * time.Second}
		})
		var due, ran time.Time
		work(t, in, func(*message.Message) error { ran = time.Now(); return nil }, func() {
			<-time.After(time.Minute)
			if _, err := in.Middleware(handle(fail))(newMessage(inHandler(t, "stock"), "a")); err != nil {
				t.Error(err)
			}
			due = store.row("a").due
			waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted })
		}, func(c *middleware.RetryWorkerConfig) { c.PollInterval = time.Hour })
		if late := ran.Sub(due); late < 0 || late > 100*time.Millisecond {
			t.Errorf("run %s late", late)
		}
	})
}

// A message that another delivery runs must not be asked for again and again meanwhile.
func TestMessageInFlightElsewhereIsNotAskedForInAHotLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.put(failedBefore("a", stores.PlacementParked, 1))
		in := newInbox(t, store)
		store.fault = func(call string) error {
			if call == "begin" {
				store.inFlight["a"] = store.asked["begin"] < 1000
			}
			return nil
		}
		// Due passes by what is in flight when it is asked; here it begins in between.
		store.release = func() { store.inFlight["a"] = false }
		work(t, in, succeed, func() { <-time.After(time.Minute) }, func(c *middleware.RetryWorkerConfig) { c.Concurrency = 1 })
		if n := store.calls("begin"); n < 30 || n > 200 {
			t.Errorf("claimed %d times in a minute", n)
		}
	})
}

func TestWorkerIsWokenByTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &wakingLedger{ledger: newLedger(), wake: make(chan struct{})}
		f := failedBefore("a", stores.PlacementParked, 1)
		f.DueIn = time.Minute
		store.put(f)
		work(t, newInbox(t, store), succeed, func() {
			<-time.After(2 * time.Minute) // the connection is lost and made again meanwhile
			if store.row("a").status == stores.StatusCompleted {
				t.Error("it was polled for")
			}
			store.wake <- struct{}{}
			synctest.Wait()
			if store.row("a").status != stores.StatusCompleted {
				t.Error("it was not run at once")
			}
		}, func(c *middleware.RetryWorkerConfig) { c.PollInterval = 24 * time.Hour })
	})
}

type wakingLedger struct {
	*ledger

	listens int
	wake    chan struct{}
}

func (l *wakingLedger) Listen(ctx context.Context, wake func()) error {
	if l.listens++; l.listens < 3 {
		return errors.New("connection lost")
	}
	for {
		select {
		case <-l.wake:
			wake()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// What a worker has reserved is in its memory.
func TestWorkerReservesNoMoreThanItCanKeep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const small, large, places, megabyte = 1500, 100, 16, 1 << 20
		store, payload, most := newLedger(), make([]byte, 8*megabyte), 0
		for i := range small + large {
			f := failedBefore(fmt.Sprint(i), stores.PlacementParked, 1)
			f.Content = &stores.Content{State: stores.ContentKept, UUID: fmt.Sprint(i)}
			if i >= small {
				f.Content.Payload, f.DueIn = payload, time.Millisecond
			}
			store.put(f)
		}
		reserved := func() (bytes int) { // the store is locked
			for _, r := range store.rows {
				if r.reserved && r.status == stores.StatusPending {
					bytes += len(r.failure.Content.Payload)
				}
			}
			return bytes
		}
		store.fault = func(string) error {
			most = max(most, reserved())
			return nil
		}
		work(t, newInbox(t, store), func(*message.Message) error { <-time.After(time.Millisecond); return nil }, func() {
			waitUntil(t, func() bool {
				for i := range small + large {
					if store.row(fmt.Sprint(i)).status != stores.StatusCompleted {
						return false
					}
				}
				return true
			})
		}, func(c *middleware.RetryWorkerConfig) { c.Concurrency = places })
		if bound := 16*megabyte + places*len(payload); most > bound || most < len(payload) {
			t.Errorf("%d MiB were reserved at once, want at most %d", most/megabyte, bound/megabyte)
		}
	})
}
