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

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// intakeHook remembers pauses.
type intakeHook struct {
	mu      sync.Mutex
	paused  int
	resumed []time.Duration
	onPause func()
}

func (h *intakeHook) IntakePaused(error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paused++
	if h.onPause != nil {
		h.onPause()
	}
}

func (h *intakeHook) IntakeResumed(after time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resumed = append(h.resumed, after)
}

// crowd delivers n messages at once and returns when each had its answer, by id.
func crowd(ctx context.Context, in *middleware.Inbox, n int, handler func(*message.Message) error) (wait func() map[string]error) {
	type answer struct {
		id  string
		err error
	}
	answers := make(chan answer, n)
	for i := range n {
		id := fmt.Sprint(i)
		ctx := withDelivery(ctx, brokers.Delivery{Count: 1})
		go func() {
			_, err := in.Middleware(handle(handler))(newMessage(ctx, id))
			answers <- answer{id, err}
		}()
	}
	return func() map[string]error {
		all := make(map[string]error)
		for range n {
			a := <-answers
			all[a.id] = a.err
		}
		return all
	}
}

func succeed(*message.Message) error { return nil }

// More deliveries than Hold.Max wait here, which must not keep the one that asks from
// asking.
func TestStoreThatIsDownIsAskedByOneAtATime(t *testing.T) {
	t.Parallel()
	for _, most := range []int{2, 64} {
		synctest.Test(t, func(t *testing.T) {
			store, hook := newLedger(), &intakeHook{}
			in := newInbox(t, store, func(c *middleware.InboxConfig) {
				c.Hold.Max, c.Hooks = most, []middleware.Hook{hook}
			})
			if err := in.Register(t.Context(), "", ""); err != nil {
				t.Fatal(err)
			}
			well := store.failing("begin")
			start := time.Now()
			wait := crowd(t.Context(), in, 50, succeed)
			<-time.After(time.Minute)
			asked := store.calls("begin")
			well()
			for id, err := range wait() {
				if err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			// At first as many as come at once, then one every one to two seconds.
			if asked < 30 || asked > 50+80 {
				t.Errorf("the store that is down was asked %d times", asked)
			}
			if took := time.Since(start); took > time.Minute+5*time.Second {
				t.Errorf("it took %s to go on", took-time.Minute)
			}
			if hook.paused != 1 || len(hook.resumed) != 1 || hook.resumed[0] < time.Minute {
				t.Errorf("%+v", hook)
			}
		})
	}
}

func TestNewArrivalsDoNotAskWhileTheIntakeIsPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Hold = middleware.HoldConfig{MinPause: 10 * time.Second, MaxPause: 10 * time.Second}
		})
		if err := in.Register(t.Context(), "", ""); err != nil {
			t.Fatal(err)
		}
		well := store.failing("begin")
		first := crowd(t.Context(), in, 1, succeed)
		synctest.Wait()
		rest := crowd(t.Context(), in, 30, succeed)
		synctest.Wait()
		if n := store.calls("begin"); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
		well()
		first()
		for id, err := range rest() {
			if err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

// A message whose own trouble looks like the store's, whatever its form, must not keep
// the others waiting.
func TestTroubleOfOneMessageDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]error{
		"unavailable": stores.ErrUnavailable,
		"unexpected":  errors.New("invalid byte sequence"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				down := true
				store := &scriptedStore{begin: func(_ int, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
					switch {
					case down:
						return nil, stores.Verdict{}, stores.ErrUnavailable
					case rawID(c.Key) == "0":
						return nil, stores.Verdict{}, trouble
					}
					return &scriptedAttempt{}, stores.Verdict{Outcome: stores.Claimed}, nil
				}}
				in := newInbox(t, store)
				ctx, stop := context.WithCancel(t.Context())
				troubled := crowd(ctx, in, 1, succeed)
				<-time.After(10 * time.Second) // it is the one that asks
				store.mu.Lock()
				down = false
				store.mu.Unlock()

				start := time.Now()
				const healthy = 200
				for i := range healthy {
					if _, err := in.Middleware(handle(succeed))(newMessage(t.Context(), fmt.Sprint("healthy", i))); err != nil {
						t.Fatal(err)
					}
					<-time.After(10 * time.Millisecond) // what they take each
				}
				if took := time.Since(start); took > 12*time.Second { // 4 s of them until the first has asked
					t.Errorf("%d others took %s instead of 2 s", healthy, took)
				}
				stop()
				troubled()
			})
		})
	}
}

func TestShutdownEndsTheWaitForTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.failing("begin")
		ctx, stop := context.WithCancel(t.Context())
		wait := crowd(ctx, newInbox(t, store), 20, succeed)
		<-time.After(10 * time.Second)
		start := time.Now()
		stop()
		for id, err := range wait() {
			if !errors.Is(err, middleware.ErrNotNow) || middleware.OnlyFailures(err) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}

func TestWaitForTheStoreEndsWithTheHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.failing("begin")
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hold.Limit = time.Minute })
		start := time.Now()
		for id, err := range crowd(t.Context(), in, 20, succeed)() {
			if !errors.Is(err, middleware.ErrNotNow) || !errors.Is(err, stores.ErrUnavailable) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if took := time.Since(start); took > time.Minute || took < 50*time.Second {
			t.Errorf("held for %s", took)
		}
	})
}

// Each gives up before a pause between questions is over, and yet somebody has to ask.
func TestShortHoldsDoNotKeepTheIntakePaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Hold = middleware.HoldConfig{Limit: time.Second, MaxPause: 10 * time.Second}
		})
		well := store.failing("begin")
		start := time.Now()
		for time.Since(start) < time.Minute {
			crowd(t.Context(), in, 5, succeed)()
		}
		well()
		for time.Since(start) < time.Minute+11*time.Second {
			if crowd(t.Context(), in, 1, succeed)()["0"] == nil {
				return
			}
		}
		t.Error("the store is asked no more")
	})
}

// A store that comes and goes: every pause has its end, and nothing is lost or doubled.
func TestIntakePausesAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, hook := newLedger(), &intakeHook{}
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hooks = []middleware.Hook{hook} })
		start := time.Now()
		store.fault = func(call string) error {
			if call != "commit" && int(time.Since(start)/(7*time.Second))%2 == 0 {
				return stores.ErrUnavailable
			}
			return nil
		}
		for range 6 {
			wait := crowd(t.Context(), in, 40, func(m *message.Message) error {
				<-time.After(3 * time.Second)
				return fail(m)
			})
			for id, err := range wait() {
				if err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}
			for id := range store.rows {
				if r := store.row(id); r.failure.Attempts != 1 {
					t.Errorf("%s: %+v", id, r)
				}
			}
			store.mu.Lock()
			clear(store.rows)
			store.mu.Unlock()
		}
		if hook.paused < 2 || hook.paused != len(hook.resumed) {
			t.Errorf("%d pauses, %d ends", hook.paused, len(hook.resumed))
		}
	})
}

// A store that answers some calls and refuses others, such as one that has become
// read-only, is not asked more often for seeming to be back each time.
func TestStoreThatOnlyReadsDoesNotMakeTheIntakeFlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, hook := newLedger(), &intakeHook{}
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Hold.Limit, c.Hooks = time.Minute, []middleware.Hook{hook}
		})
		store.failing("record")
		results := make(chan error)
		for i := range 4 {
			go func() {
				_, err := in.Middleware(handle(mustNotRun(t)))(newMessage(suspect(t.Context()), fmt.Sprint(i)))
				results <- err
			}()
		}
		for range 4 {
			if err := <-results; !errors.Is(err, middleware.ErrNotNow) {
				t.Error(err)
			}
		}
		if n := store.calls("record"); n < 10 || n > 4*60 || hook.paused > 4*60 {
			t.Errorf("in a minute it was asked to write %d times by 4 deliveries, and paused %d times", n, hook.paused)
		}
	})
}

// Messages whose failures the store refuses, while it serves all others.
func TestFailuresThatTheStoreRefusesStopNobodyElse(t *testing.T) {
	t.Parallel()
	for _, refused := range []int{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			store := &scriptedStore{record: func(int, stores.Failure) error { return stores.ErrUnavailable }}
			in := newInbox(t, store)
			ctx, stop := context.WithCancel(t.Context())
			wait := crowd(ctx, in, refused, fail)
			synctest.Wait()
			start := time.Now()
			const healthy = 1000
			for i := range healthy {
				if _, err := in.Middleware(handle(succeed))(newMessage(t.Context(), fmt.Sprint("healthy ", i))); err != nil {
					t.Fatal(err)
				}
				<-time.After(10 * time.Millisecond) // what they take each
			}
			if took := time.Since(start); took > 30*time.Second { // minutes, if each of them paused the intake again and again
				t.Errorf("beside %d messages that the store refuses, %d others took %s instead of 10 s", refused, healthy, took)
			}
			stop()
			wait()
		})
	}
}
