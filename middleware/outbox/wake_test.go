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

// wakes counts what is heard on a store until its test ends.
func wakes(tb testing.TB, store stores.OutboxWaker) *atomic.Int64 {
	tb.Helper()
	var heard atomic.Int64
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- store.ListenOutbox(ctx, func(stores.OutboxWake) { heard.Add(1) }) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			tb.Error(err)
		}
	})
	testenv.Eventually(tb, "somebody listens", func() bool { return heard.Load() == 1 })
	heard.Store(0)
	return &heard
}

// A commit of another process is published at once, though the relay would not look for it
// for an hour, and however long its transaction took.
func TestCommitsOfOtherProcessesWakeTheRelay(t *testing.T) {
	t.Parallel()
	r := onPostgres(t)
	for name, store := range elsewhere(t, r.address) {
		b := &broker{}
		c := quick(map[string]message.Publisher{"": each{b}})
		c.LeaseTTL, c.PollInterval = 4*time.Hour, time.Hour
		_, stop := start(t, store.(stores.Outbox), c)
		r.say("", "", "first")
		waker := outbox.NewWaker(r.outbox.(stores.OutboxWaker), outbox.WakerConfig{})
		testenv.Eventually(t, name+": the relay has leases", func() bool {
			waker.Poke()
			return len(b.all()) == 1
		})
		time.Sleep(300 * time.Millisecond) // what was seen is left behind
		r.say("", "", "second")
		waker.Poke(1)
		testenv.Eventually(t, name+": the second is published", func() bool { return len(b.all()) == 2 })
		stop()
	}
}

// However many commits there are, the database is told few times; and never, by a relay that
// is alone, or if that is switched off.
func TestFewCommitsWakeOtherProcesses(t *testing.T) {
	t.Parallel()
	r := onPostgres(t)
	for name, store := range elsewhere(t, r.address) {
		heard := wakes(t, store)
		const every = 20 * time.Millisecond
		waker, begun := outbox.NewWaker(store, outbox.WakerConfig{Interval: every}), time.Now()
		for time.Since(begun) < 10*every {
			waker.Poke()
		}
		testenv.Eventually(t, name+": it is heard", func() bool { return heard.Load() > 1 })
		if n, most := heard.Load(), int64(time.Since(begun)/every)+2; n > most {
			t.Errorf("%s: woken %d times, at most %d are allowed", name, n, most)
		}
	}

	c := quick(map[string]message.Publisher{"": each{&broker{}}})
	c.LeaseTTL, c.PublishTimeout = 400*time.Millisecond, 100*time.Millisecond
	heard := wakes(t, r.outbox.(stores.OutboxWaker))
	one, stop := start(t, r.outbox, c)
	for range 20 {
		one.Poke()
		time.Sleep(10 * time.Millisecond)
	}
	if n := heard.Load(); n != 0 {
		t.Errorf("a relay that is alone has woken others %d times", n)
	}
	quiet := c
	quiet.WakeInterval = -1
	other, stopOther := start(t, r.outbox, quiet)
	testenv.Eventually(t, "a relay wakes another", func() bool {
		one.Poke()
		return heard.Load() > 0
	})
	stop()
	testenv.Eventually(t, "the last one was heard", func() bool {
		n := heard.Load()
		time.Sleep(100 * time.Millisecond)
		return n == heard.Load()
	})
	n := heard.Load()
	other.Poke()
	time.Sleep(100 * time.Millisecond)
	if heard.Load() != n {
		t.Error("a relay wakes others though that is switched off")
	}
	stopOther()
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
