package sqlite

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

func TestTakeOver(t *testing.T) {
	o := open(t)
	claim := claimOf("a")
	claim.TraceParent, _ = stores.ParseTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

	// By a redelivery, once it is due.
	f := redelivered("a", time.Hour)
	f.Version = o.record(f)
	require.Equal(t, stores.Deferred, o.verdict(claim).Outcome)
	f.DueIn = 0
	f.Version = o.record(f)
	require.Equal(t, stores.Claimable, o.answer(claim, true).Outcome)
	conflict := claim
	conflict.Fingerprint = fingerprintOf("other")
	o.unchanged(func() { require.Equal(t, stores.Conflict, o.verdict(conflict).Outcome) })
	o.unchanged(func() {
		a, verdict, err := o.Begin(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, f.Version, verdict.Failure.Version)
		require.Equal(t, 1, verdict.Failure.Attempts)
		o.effect(a, "undone")
		require.NoError(t, a.Rollback(t.Context()))
	})

	// By its version.
	for _, version := range []int64{f.Version - 1, f.Version + 1, sqlstore.Version(99, 0)} {
		stale := claim
		stale.Take = version
		o.unchanged(func() { require.Equal(t, stores.InFlight, o.verdict(stale).Outcome) })
	}
	claim.Take = f.Version
	o.unchanged(func() {
		a := o.begin(claim)
		_, err := txOf(t, a).Exec("COMMIT")
		require.Error(t, err)
		require.ErrorIs(t, a.Commit(t.Context()), stores.ErrTxEnded)
	})
	a := o.begin(claim)
	o.effect(a, "done")
	before := time.Now()
	require.NoError(t, a.Commit(t.Context()))
	o.requireCounts(1, 1)
	for _, look := range []bool{false, true} {
		verdict := o.answer(claim, look)
		require.Equal(t, stores.Duplicate, verdict.Outcome)
		require.Equal(t, claim.TraceParent, verdict.TraceParent)
		require.Equal(t, claim.Fingerprint, verdict.Fingerprint)
		require.WithinDuration(t, before, verdict.CompletedAt, 10*time.Second)
		require.Zero(t, verdict.Failure)
	}
	var failures int
	require.NoError(t, o.DB().QueryRow("SELECT count(*) FROM millpond_failure").Scan(&failures))
	require.Zero(t, failures)
	require.Equal(t, stores.StatusCompleted, o.message("a").Status)

	// What is not pending cannot be taken, nor what does not exist.
	failed := failureOf("failed")
	failed.Status = stores.StatusFailed
	take := claimOf("failed")
	take.Take = o.record(failed)
	o.unchanged(func() { require.Equal(t, stores.Final, o.verdict(take).Outcome) })
	take = claimOf("absent")
	take.Take = 7
	o.unchanged(func() { require.Equal(t, stores.InFlight, o.verdict(take).Outcome) })
	take = claimOf("parked")
	take.Take = o.record(failureOf("parked")) + 1
	o.unchanged(func() { require.Equal(t, stores.Parked, o.verdict(take).Outcome) })
}

// Of many that take one version over, one does, and it can be resolved.
func TestTakeOverOnce(t *testing.T) {
	o := open(t)
	other := openAt(t, o.path)
	take := claimOf("a")
	take.Take = o.record(failureOf("a"))
	completed, err := o.Resolve(t.Context(), take.Key)
	require.NoError(t, err)
	require.False(t, completed)
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			s := []opened{o, other}[i%2]
			a, verdict, err := s.Begin(t.Context(), take)
			if err != nil {
				t.Error(err)
			}
			if verdict.Outcome == stores.Claimed {
				won.Add(1)
				if err := a.Commit(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	completed, err = o.Resolve(t.Context(), take.Key)
	require.NoError(t, err)
	require.True(t, completed)
}

func TestOrder(t *testing.T) {
	o := open(t)
	claim := func(id, key string) stores.Claim {
		c := claimOf(id)
		c.OrderKey = []byte(key)
		return c
	}
	o.complete(claim("0", "x"))
	head := failureOf("1")
	head.OrderKey = []byte("x")
	head.Version = o.record(head)
	o.unchanged(func() { require.Equal(t, stores.Behind, o.verdict(claim("2", "x")).Outcome) })
	require.Equal(t, stores.Duplicate, o.verdict(claim("0", "x")).Outcome)
	require.Equal(t, stores.Parked, o.verdict(claim("1", "x")).Outcome)
	o.complete(claim("3", "y"))
	o.complete(claimOf("4"))

	// The next one is due as soon as the one before has gone, in whatever way.
	behind := failureOf("2")
	behind.OrderKey, behind.DueIn = []byte("x"), time.Hour
	behind.Version = o.record(behind)
	last := failureOf("5")
	last.OrderKey, last.DueIn = []byte("x"), time.Hour
	o.record(last)
	take := claim("1", "x")
	take.Take = head.Version
	require.NoError(t, o.begin(take).Commit(t.Context()))
	require.LessOrEqual(t, o.message("2").DueIn, time.Duration(0))
	require.Greater(t, o.message("5").DueIn, time.Minute)

	behind.Version = o.message("2").Version
	behind.Status, behind.OrderKey = stores.StatusFailed, nil
	o.record(behind)
	require.LessOrEqual(t, o.message("5").DueIn, time.Duration(0))
	require.Equal(t, stores.Behind, o.verdict(claim("6", "x")).Outcome)
	last = failureOf("6")
	last.OrderKey, last.DueIn = []byte("x"), time.Hour
	last.Version = o.record(last)
	_, err := o.Change(t.Context(), stores.Change{Verb: stores.VerbDiscard, Limit: 1, Filter: stores.Filter{ID: []byte("5")}})
	require.NoError(t, err)
	require.LessOrEqual(t, o.message("6").DueIn, time.Duration(0))
	last.Version, last.Status = o.message("6").Version, stores.StatusFailed
	o.record(last)
	o.complete(claim("7", "x"))
}
