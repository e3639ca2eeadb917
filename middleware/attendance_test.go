package middleware_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// attended is a ledger that keeps which processes attend.
type attended struct {
	*ledger

	seen map[string]time.Time
}

func newAttended() *attended { return &attended{newLedger(), make(map[string]time.Time)} }

func (a *attended) Attend(_ context.Context, _ stores.Consumer, process string) (others []stores.Attendant, err error) {
	defer a.mu.Unlock()
	if err := a.enter("attend"); err != nil {
		return nil, err
	}
	a.seen[process] = time.Now()
	for other, seen := range a.seen {
		if other != process {
			others = append(others, stores.Attendant{Process: other, Unseen: time.Since(seen)})
		}
	}
	return others, nil
}

func (a *attended) Leave(_ context.Context, _ stores.Consumer, process string, unseen time.Duration) error {
	defer a.mu.Unlock()
	if err := a.enter("leave"); err != nil {
		return err
	}
	if seen, ok := a.seen[process]; ok && time.Since(seen) >= unseen {
		delete(a.seen, process)
	}
	return nil
}

// attending returns who attends.
func (a *attended) attending() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.seen))
}

// silent delivers a new message of a subscriber that tells nothing of redeliveries, and
// reports whether its attempt was counted before it ran.
func silent(t *testing.T, in *middleware.Inbox, store interface{ calls(string) int }) bool {
	t.Helper()
	before := store.calls("record")
	serial++
	m := message.NewMessage(fmt.Sprint(serial), nil)
	if _, err := in.Middleware(handle(func(*message.Message) error { return nil }))(m); err != nil {
		t.Fatal(err)
	}
	return store.calls("record") > before
}

var serial int

// No test here is parallel: they share the serial numbers.

func TestStartAfterACleanEndSuspectsNothing(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		store := newAttended()
		for range 2 {
			in := newInbox(t, store)
			for range 300 {
				if silent(t, in, store) {
					t.Fatal("a message is suspect, and no process has died")
				}
			}
			if err := in.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if store.calls("attend") != 2 || store.calls("look") != 0 || len(store.attending()) != 0 {
			t.Errorf("asked %v, %d processes are left", store.asked, len(store.attending()))
		}
	})
}

func TestStartAfterADeathSuspectsForATime(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		store := newAttended()
		store.seen["dead"] = time.Now().Add(-time.Second)
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.SuspectFor = time.Minute })
		for begin := time.Now(); time.Since(begin) < 2*time.Minute; <-time.After(100 * time.Millisecond) {
			after := time.Since(begin)
			if got := silent(t, in, store); got != (after < time.Minute) {
				t.Fatalf("after %s suspect is %t", after, got)
			}
		}
		if slices.Contains(store.attending(), "dead") {
			t.Error("the row of the dead process has served, and is left")
		}
	})
}

func TestLivingPeerLearnsOfADeath(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		store := newAttended()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.SuspectFor = time.Minute })
		silent(t, in, store)
		for begin, next := time.Now(), time.Duration(0); time.Since(begin) < 3*time.Minute; <-time.After(100 * time.Millisecond) {
			after := time.Since(begin)
			if after < time.Minute && after >= next { // another process lives, and then dies
				store.mu.Lock()
				store.seen["peer"] = time.Now()
				store.mu.Unlock()
				next += 5 * time.Second
			}
			got := silent(t, in, store)
			switch {
			case after < time.Minute+10*time.Second && got, after > 2*time.Minute+30*time.Second && got,
				after > time.Minute+25*time.Second && after < 2*time.Minute+10*time.Second && !got:
				t.Fatalf("after %s suspect is %t", after, got)
			}
		}
	})
}

// A process that begins beside a living one fears its death only until it is seen to live.
func TestStartBesideALivingPeer(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		store := newAttended()
		living, begins := newInbox(t, store), newInbox(t, store)
		silent(t, living, store)
		if !silent(t, begins, store) {
			t.Error("nobody knows yet whether the other process lives, and nothing is suspect")
		}
		for range 120 {
			<-time.After(100 * time.Millisecond)
			silent(t, living, store)
		}
		if silent(t, begins, store) {
			t.Error("messages are suspect beside a process that lives")
		}
	})
}

func TestIdleProcessLeaves(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		store := newAttended()
		in := newInbox(t, store)
		silent(t, in, store)
		<-time.After(5 * time.Minute)
		synctest.Wait()
		if len(store.attending()) != 0 || store.calls("attend") > 20 {
			t.Errorf("%d processes attend, after %d calls", len(store.attending()), store.calls("attend"))
		}
		if silent(t, in, store) || len(store.attending()) != 1 {
			t.Errorf("%d processes attend after the next delivery", len(store.attending()))
		}
	})
}

// While the store does not know of it a process begins nothing.
func TestProcessThatCannotAttendHolds(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		store, begin := newAttended(), time.Now()
		store.fault = func(call string) error {
			if call == "attend" && time.Since(begin) < 30*time.Second {
				return stores.ErrUnavailable
			}
			return nil
		}
		in := newInbox(t, store)
		if silent(t, in, store) || time.Since(begin) < 30*time.Second {
			t.Errorf("it ran after %s", time.Since(begin))
		}
	})
}

// A store that keeps no processes: anybody may have died before this one began.
func TestWithoutAttendanceTheFirstAreSuspect(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.SuspectFor = time.Minute })
		for _, test := range []struct {
			after time.Duration
			want  bool
		}{{0, true}, {59 * time.Second, true}, {2 * time.Second, false}} {
			<-time.After(test.after)
			if got := silent(t, in, store); got != test.want {
				t.Errorf("suspect is %t", got)
			}
		}
	})
}
