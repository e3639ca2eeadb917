package dynamodb

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// The bounds hold the service's time, whatever this machine says it is.
func TestTheClockIsTheServices(t *testing.T) {
	t.Parallel()
	var c clock
	require.ErrorIs(t, c.check(), stores.ErrUnavailable)

	service := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC) // years away
	begun := time.Now()
	at := func(passed, trip time.Duration) { // an answer of that moment
		c.observe(service.Add(passed).Truncate(time.Second), begun.Add(passed-trip), begun.Add(passed+trip))
	}
	check := func() (width time.Duration) {
		t.Helper()
		require.NoError(t, c.check())
		low, high := c.bounds()
		now := service.Add(time.Since(begun)).UnixMicro()
		require.LessOrEqual(t, low, now)
		require.GreaterOrEqual(t, high, now-time.Second.Microseconds()/1000)
		return micros(high - low)
	}
	at(0, 10*time.Millisecond)
	wide := check()
	for passed := 100 * time.Millisecond; passed < 3*time.Second; passed += 70 * time.Millisecond {
		at(passed, 10*time.Millisecond)
	}
	require.Less(t, check(), wide/5, "answers bring them closer")
	c.observe(service.Add(time.Hour), begun, begun.Add(time.Millisecond)) // another host, which is ahead
	low, _ := c.bounds()
	require.Greater(t, low, service.Add(30*time.Minute).UnixMicro(), "the latest answer counts where they contradict")
}

// Workers whose machines are days apart agree on who has a lease: it is not taken over before it
// has ended, and its holder changes nothing afterwards.
func TestALeaseAmongClocksThatAreDaysApart(t *testing.T) {
	b := newBench(t)
	server := testenv.DynamoDB(t)
	prefix := b.table[:len(b.table)-len("inbox")]
	// The clock is made of differences to the first request, so that a machine's own time is
	// seen nowhere; the signature alone has it, which the SDK corrects.
	other := openStore(t, server, prefix, &clock{})
	require.NoError(t, other.Register(t.Context(), stores.Registration{Consumer: consumer}))
	other.clock.base = other.clock.base.Add(48 * time.Hour)
	other.clock.low -= 48 * time.Hour
	other.clock.high -= 48 * time.Hour
	other.clock.at = other.clock.at.Add(48 * time.Hour)

	c := newClaim()
	start := stores.Failure{
		Key: c.Key, Status: stores.StatusPending, Placement: stores.PlacementRedelivered, Attempts: 1, DueIn: time.Second, Start: true, Holder: "first",
	}
	version, err := b.Record(t.Context(), start)
	require.NoError(t, err)
	begun := time.Now()
	take := start
	take.Version, take.Holder, take.Lapsed, take.Attempts = version, "second", true, 2
	_, err = other.Record(t.Context(), take)
	require.ErrorIs(t, err, stores.ErrChanged, "it has not ended")

	first := stores.HeldLease{Key: c.Key, Version: version, Holder: "first"}
	require.NoError(t, b.Extend(t.Context(), first, time.Second))
	renewed := time.Now()
	var second int64
	testenv.Eventually(t, "the lease is taken over", func() bool {
		second, err = other.Record(t.Context(), take)
		return !errors.Is(err, stores.ErrChanged)
	})
	require.NoError(t, err)
	require.Greater(t, time.Since(renewed), time.Second, "since %s", time.Since(begun))
	require.ErrorIs(t, b.Extend(t.Context(), first, time.Minute), stores.ErrChanged)
	late := c
	late.Take = version
	a := b.win(t, late) // as this process remembers it
	effect(t, a, "late")
	require.ErrorIs(t, a.Commit(t.Context()), stores.ErrNotCommitted)
	require.Zero(t, b.effects(t, "late"))
	_, v, err := b.Begin(t.Context(), late)
	require.NoError(t, err)
	require.NotEqual(t, stores.Claimed, v.Outcome, "the second try has looked")

	late.Take = second
	a2, v, err := other.Begin(t.Context(), late)
	require.NoError(t, err)
	require.Equal(t, stores.Claimed, v.Outcome)
	require.NoError(t, a2.Commit(t.Context()))
}

// A row that was deleted and made anew is no holder's of before.
func TestAVersionIsNeverGivenAgain(t *testing.T) {
	b := newBench(t)
	c := newClaim()
	f := failureOf(c)
	f.Start, f.Holder, f.DueIn = true, "holder", time.Minute
	old, err := b.Record(t.Context(), f)
	require.NoError(t, err)
	before := b.leases.take(c.Key, old)
	handled, err := b.mirror.exec(t.Context(), "DELETE FROM millpond_inbox")
	require.True(t, handled)
	require.NoError(t, err)
	again, err := b.Record(t.Context(), f)
	require.NoError(t, err)
	require.NotEqual(t, old, again)
	b.leases.keep(c.Key, before)
	c.Take = old
	require.ErrorIs(t, b.win(t, c).Commit(t.Context()), stores.ErrNotCommitted)
}

// What the table's time to live may have deleted is stale, as long as the consumer is older.
func TestStale(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Retention = 48 * time.Hour })
	c := newClaim()
	require.NoError(t, b.win(t, c).Commit(t.Context()))
	i, err := b.get(t.Context(), messageKey(c.Key))
	require.NoError(t, err)
	require.InDelta(t, time.Now().Add(48*time.Hour).Unix(), integer(i["ttl"]), 3600*24*400, "whatever this machine's clock says")
	require.NotZero(t, integer(i["ttl"]))

	old := newClaim()
	old.Time = time.Now().Add(-72 * time.Hour)
	require.NoError(t, b.win(t, old).Rollback(t.Context()), "the consumer has completed nothing so early")

	consumerItem, err := b.get(t.Context(), consumerKey(sqlstore.ConsumerNumber(consumer)))
	require.NoError(t, err)
	consumerItem["reg"] = num(time.Now().Add(-96 * time.Hour).UnixMicro())
	b.put(t, consumerItem)
	_, v, err := b.Begin(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, stores.Stale, v.Outcome)
	require.True(t, v.PurgedThrough.After(old.Time))
	old.Time = time.Now().Add(-47 * time.Hour)
	require.NoError(t, b.win(t, old).Rollback(t.Context()), "it would be there")

	f := failureOf(c) // only completed items go by themselves
	f.Key = newClaim().Key
	_, err = b.Record(t.Context(), f)
	require.NoError(t, err)
	i, err = b.get(t.Context(), messageKey(f.Key))
	require.NoError(t, err)
	require.Nil(t, i["ttl"])
}

// A store whose service does not say what time it is handles nothing.
func TestAnswersWithoutADate(t *testing.T) {
	b := newBench(t)
	*b.clock = clock{}
	b.known.Forget()
	b.faults.mu.Lock()
	b.faults.any = func(string) fault {
		return func(f *faults, r *http.Request) (*http.Response, error) {
			answer, err := f.HTTPClient.Do(r)
			if err == nil {
				answer.Header.Del("Date")
			}
			return answer, err
		}
	}
	b.faults.mu.Unlock()
	require.ErrorIs(t, b.Register(t.Context(), stores.Registration{Consumer: consumer}), stores.ErrUnavailable)
	_, _, err := b.Begin(t.Context(), newClaim())
	require.ErrorIs(t, err, stores.ErrNotRegistered)
	_, err = b.Counts(t.Context(), 1)
	require.ErrorIs(t, err, stores.ErrUnavailable)
}
