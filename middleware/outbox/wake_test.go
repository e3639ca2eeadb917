package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// elsewhere are the stores of other processes.
func elsewhere(tb testing.TB, address string) map[string]stores.OutboxWaker {
	tb.Helper()
	native, err := postgres.Open(tb.Context(), address)
	check(tb, err)
	tb.Cleanup(func() { _ = native.Close() })
	plain, err := sqldb.Open(tb.Context(), strings.Replace(address, "postgres://", "postgres+sql://", 1))
	check(tb, err)
	tb.Cleanup(func() { _ = plain.Close() })
	return map[string]stores.OutboxWaker{"pgx": native, "database/sql": plain}
}

const wakeInterval = 25 * time.Millisecond

// wakes are what is heard on a store until its test ends.
type wakes struct{ all, first, others atomic.Int64 } // first: of who was heard first

func hear(tb testing.TB, store stores.OutboxWaker) *wakes {
	tb.Helper()
	var heard wakes
	var first atomic.Int64
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- store.ListenOutbox(ctx, func(w stores.OutboxWake) {
			heard.all.Add(1)
			if w.Sender == 0 { // it listens
				return
			}
			if first.CompareAndSwap(0, w.Sender) || first.Load() == w.Sender {
				heard.first.Add(1)
			} else {
				heard.others.Add(1)
			}
		})
	}()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			tb.Error(err)
		}
	})
	testenv.Eventually(tb, "somebody listens", func() bool { return heard.all.Load() == 1 })
	return &heard
}

// pokes lets a relay wake others for a while, and then says something by itself, which is heard after
// what the relay has said.
func pokes(tb testing.TB, relay *outbox.Relay, store stores.OutboxWaker) {
	tb.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for range 20 {
		relay.Poke()
		<-ticker.C
	}
	check(tb, store.WakeRelays(tb.Context(), stores.OutboxWake{Sender: 1}))
}

// A commit of another process is published at once, though the relay would not look for it
// for an hour, and however long its transaction took.
func TestCommitsOfOtherProcessesWakeTheRelay(t *testing.T) {
	t.Parallel()
	r := onPostgres(t)
	for name, store := range elsewhere(t, r.address) {
		b := &broker{}
		c := quick(map[string]message.Publisher{"": each{b}})
		c.LeaseTTL, c.PollInterval, c.WakeInterval = 4*time.Hour, time.Hour, wakeInterval
		relay, stop := start(t, store.(stores.Outbox), c)
		r.say("", "", "first")
		waker := outbox.NewWaker(r.outbox.(stores.OutboxWaker), outbox.WakerConfig{})
		testenv.Eventually(t, name+": the relay has leases", func() bool {
			waker.Poke()
			return len(b.all()) == 1
		})
		check(t, relay.Flush(t.Context())) // it does not read by itself any more
		r.say("", "", "second")
		waker.Poke(1)
		testenv.Eventually(t, name+": the second is published", func() bool { return len(b.all()) == 2 })
		stop()
	}
}

// However many commits there are, the database is told few times.
func TestFewCommitsWakeOtherProcesses(t *testing.T) {
	t.Parallel()
	r := onPostgres(t)
	for name, store := range elsewhere(t, r.address) {
		heard := hear(t, store)
		const every = 20 * time.Millisecond
		waker, begun := outbox.NewWaker(store, outbox.WakerConfig{Interval: every}), time.Now()
		for time.Since(begun) < 10*every {
			waker.Poke()
		}
		testenv.Eventually(t, name+": it is heard", func() bool { return heard.first.Load() > 1 })
		if n, most := heard.first.Load(), int64(time.Since(begun)/every)+2; n > most {
			t.Errorf("%s: woken %d times, at most %d are allowed", name, n, most)
		}
	}
}

// A relay that is alone tells the database nothing, and neither does one that was not asked to.
func TestRelaysThatWakeNobody(t *testing.T) {
	t.Parallel()
	r := onPostgres(t)
	store := r.outbox.(stores.OutboxWaker)
	quiet := quick(map[string]message.Publisher{"": each{&broker{}}})
	quiet.LeaseTTL, quiet.PublishTimeout = 400*time.Millisecond, 100*time.Millisecond
	wakeful := quiet
	wakeful.WakeInterval = wakeInterval

	alone := hear(t, store)
	one, stop := start(t, r.outbox, wakeful)
	defer stop()
	pokes(t, one, store)
	testenv.Eventually(t, "the test is heard", func() bool { return alone.all.Load() > 1 })
	if n := alone.all.Load(); n != 2 {
		t.Errorf("a relay that is alone has woken others %d times", n-2)
	}

	heard := hear(t, store)
	other, stopOther := start(t, r.outbox, quiet)
	defer stopOther()
	testenv.Eventually(t, "a relay wakes another", func() bool {
		one.Poke()
		return heard.first.Load() > 0
	})
	pokes(t, other, store)
	testenv.Eventually(t, "the test is heard again", func() bool { return heard.others.Load() > 0 })
	if n := heard.others.Load(); n != 1 {
		t.Errorf("a relay that was not asked to has woken others %d times", n-1)
	}
}

// Behind a pooler in transaction mode nothing is heard, and the relay polls.
func TestRelayThatHearsNothingPolls(t *testing.T) {
	t.Parallel()
	r := onPostgres(t)
	s, err := postgres.Open(t.Context(), pgtest.WithParameters(t, r.address, "pgbouncer", "transaction"))
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	if err := s.ListenOutbox(t.Context(), func(stores.OutboxWake) {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	b := &broker{}
	_, stop := start(t, s, quick(map[string]message.Publisher{"": each{b}}))
	r.say("", "", "one")
	testenv.Eventually(t, "it is published", func() bool { return len(b.all()) == 1 })
	stop()
}
