package mysql_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// A worker is about to put a message off that waits behind another one, which is taken
// over and completed just then. Nobody may think that the other one wakes the message.
func TestMessageIsWokenAlthoughItWasLockedWhenItsPredecessorEnded(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		first := parkInOrder(t, c.Store, "first", time.Hour)
		parkInOrder(t, c.Store, "second", 0)
		goOn := putOffAndStandStill(t, c)
		done := completeTaken(t, c.Store, first)
		goOn()
		require.True(t, done || completeTaken(t, c.Store, first), "the first message cannot be taken over after the worker has gone on")
		due, err := c.Due(t.Context(), tenOf)
		require.NoError(t, err)
		require.Len(t, due, 1, "due after the first has ended; the second waits until its own time is up")
		require.Equal(t, "second", string(due[0].Key.ID))
	})
}

// A worker puts a message off, and keeps the one before it from ending meanwhile. The one
// before that ends just then, and wakes the one between.
func TestMessageIsWokenAlthoughAWorkerPutsOffTheOneBehindIt(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		first := parkInOrder(t, c.Store, "first", time.Hour)
		second := parkInOrder(t, c.Store, "second", time.Hour)
		parkInOrder(t, c.Store, "third", 0)
		goOn := putOffAndStandStill(t, c)
		assert.True(t, completeTaken(t, c.Store, first), "the first message is taken over while a worker puts off the third")
		v, err := c.Look(t.Context(), second.Key, second.Fingerprint)
		require.NoError(t, err)
		second.Take = v.Failure.Version
		assert.False(t, completeTaken(t, c.Store, second), "the second message has ended while a worker put off the third for it to wake")
		goOn()
		due, err := c.Due(t.Context(), tenOf)
		require.NoError(t, err)
		require.Len(t, due, 1, "due after the first has ended; the second waits until its own time is up")
		require.Equal(t, "second", string(due[0].Key.ID))
		second.Take = due[0].State.Version
		require.True(t, completeTaken(t, c.Store, second))
		due, err = c.Due(t.Context(), tenOf)
		require.NoError(t, err)
		require.Len(t, due, 1, "due after the second has ended; the third waits until its own time is up")
		require.Equal(t, "third", string(due[0].Key.ID))
	})
}

// What would end a message does not wait for a worker that puts off the one behind it,
// and that stands still.
func TestNobodyWaitsForAWorkerThatPutsAMessageOff(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		first := parkInOrder(t, c.Store, "first", time.Hour)
		parkInOrder(t, c.Store, "second", 0)
		goOn := putOffAndStandStill(t, c)
		ctx := within(t, 10*time.Second)
		changed, err := c.Change(ctx, stores.Change{Verb: stores.VerbDiscard, Actor: "somebody", Reason: "why not", Limit: 10})
		require.NoError(t, err)
		assert.Equal(t, 2, changed.Busy)
		_, err = c.Record(ctx, stores.Failure{
			Key: first.Key, Fingerprint: first.Fingerprint, Version: first.Take, Status: stores.StatusFailed,
			Placement: stores.PlacementParked, Attempts: 2, OrderKey: first.OrderKey,
		})
		require.ErrorIs(t, err, stores.ErrChanged)
		goOn()
	})
}

var tenOf = stores.DueQuery{Consumer: billing, Limit: 10, Reserve: time.Minute}

// parkInOrder records a parked failure of one order key.
func parkInOrder(t *testing.T, s *mysql.Store, id string, dueIn time.Duration) stores.Claim {
	t.Helper()
	claim := claimOf(id)
	claim.OrderKey = []byte("order")
	var err error
	claim.Take, err = s.Record(t.Context(), stores.Failure{
		Key: claim.Key, Fingerprint: claim.Fingerprint, Status: stores.StatusPending, Placement: stores.PlacementParked,
		Attempts: 1, OrderKey: claim.OrderKey, DueIn: dueIn, Content: &stores.Content{State: stores.ContentKept},
	})
	require.NoError(t, err)
	return claim
}

// completeTaken takes a failed message over and commits, unless somebody has it in hand.
func completeTaken(t *testing.T, s *mysql.Store, claim stores.Claim) bool {
	t.Helper()
	a, v, err := s.Begin(within(t, 20*time.Second), claim)
	require.NoError(t, err)
	if v.Outcome != stores.Claimed {
		return false
	}
	require.NoError(t, a.Commit(t.Context()))
	return true
}

// putOffAndStandStill begins a Due that stands still in the middle of putting a message
// off for long, until goOn is called, which waits for its end.
func putOffAndStandStill(t *testing.T, c counted) (goOn func()) {
	t.Helper()
	worker := c.another(t, nil)
	holder, err := c.admin.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = holder.Close() })
	const name = "millpond test stands still"
	for _, text := range []string{
		`CREATE TRIGGER stand_still BEFORE UPDATE ON millpond_failure FOR EACH ROW
			BEGIN IF NEW.reserved = 0 AND NEW.due_at > OLD.due_at + 2000000 THEN DO GET_LOCK('` + name + `', 30); DO RELEASE_LOCK('` + name + `'); END IF; END`,
		`DO GET_LOCK('` + name + `', 30)`,
	} {
		_, err := holder.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	put := make(chan error, 1)
	go func() {
		_, err := worker.Due(t.Context(), tenOf)
		put <- err
	}()
	testenv.Eventually(t, "the worker stands still in the middle", func() bool {
		var waiting int
		err := holder.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User lock'").Scan(&waiting)
		return err == nil && waiting == 1
	})
	return func() {
		_, err := holder.ExecContext(t.Context(), "DO RELEASE_LOCK('"+name+"')")
		require.NoError(t, err)
		require.NoError(t, <-put)
	}
}
