package dynamodb

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// Processes that publish in the same seconds draw different numbers, which grow in each.
func TestProcessesDrawDifferentNumbers(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	const (
		processes = 40
		seconds   = 300
		each      = 60
	)
	b := newBench(t)
	begun := b.clock.now()
	begun -= begun % time.Second.Microseconds()
	drawn := make(map[int64][]int64) // where they begin, by second
	for range processes {
		store := openStore(t, testenv.DynamoDB(t), b.table[:len(b.table)-len("inbox")], b.clock)
		last := int64(0)
		for second := range int64(seconds) {
			first, err := store.drawOutputs(t.Context(), begun+second*time.Second.Microseconds(), each)
			require.NoError(t, err)
			require.Greater(t, first, last)
			last = first + each - 1
			drawn[second] = append(drawn[second], first)
		}
	}
	for second, all := range drawn {
		slices.Sort(all)
		for i := range len(all) - 1 {
			require.LessOrEqual(t, all[i]+each, all[i+1], "in second %d", second)
		}
	}
}

// A process that draws more in a second than it has numbers in it goes on in the next one.
func TestAProcessThatDrawsManyNumbers(t *testing.T) {
	b := newBench(t)
	now := b.clock.now()
	last, total := int64(0), 0
	for range 200 {
		first, err := b.drawOutputs(t.Context(), now, MaxOperations)
		require.NoError(t, err)
		require.Greater(t, first, last)
		last, total = first+MaxOperations-1, total+MaxOperations
		require.Equal(t, first>>slotBits, last>>slotBits, "they are in one slot")
	}
	require.Less(t, last, numberAt(now+int64(total)*time.Millisecond.Microseconds()))
	require.Less(t, last, int64(1)<<53)
}

// A service that has no time for the numbers of outputs has none for the transaction.
func TestNumbersThatCannotBeDrawn(t *testing.T) {
	b := newBench(t)
	a := b.win(t, newClaim())
	require.NoError(t, a.Emit([]stores.Output{outputOfSize("output", 1)}))
	b.then("UpdateItem", throttles, throttles, throttles, throttles)
	require.ErrorIs(t, a.Commit(t.Context()), stores.ErrNotCommitted)
	require.Error(t, a.Interrupted(), "it is not the handler's")
	require.Empty(t, b.pending(t))
}

// A step that is recorded after the lease was read, and before the completion, is gone with it. So is
// what is kept of a message whose completion was not heard of.
func TestWhatIsKeptGoesWithACompletion(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	t.Run("a step that comes late", func(t *testing.T) {
		b := newBench(t)
		f, lease, step := b.leased(t)
		b.then(transact, delay, delay, delay, delay, delay, delay, delay, delay)
		require.ErrorIs(t, b.RecordStep(t.Context(), lease, step), stores.ErrUnavailable)
		b.then(transact)
		c := newClaim()
		c.Key, c.Take = f.Key, f.Version
		require.NoError(t, b.win(t, c).Rollback(t.Context())) // the next try reads
		a := b.win(t, c)
		b.arrive(t)
		require.NoError(t, a.Commit(t.Context()))
		require.Zero(t, b.left(t))
	})
	t.Run("a completion that is found later", func(t *testing.T) {
		b := newBench(t)
		f := failureOf(newClaim())
		version, err := b.Record(t.Context(), f)
		require.NoError(t, err)
		require.Equal(t, 1, b.left(t))
		c := newClaim()
		c.Key, c.Fingerprint, c.Take = f.Key, f.Fingerprint, version
		a := b.win(t, c)
		b.then("PutItem", unheard()...)
		b.then("GetItem", resets, resets, resets, resets)
		require.ErrorIs(t, a.Commit(t.Context()), stores.ErrCommitUnknown)
		b.then("PutItem")
		b.then("GetItem")
		completed, err := b.Resolve(t.Context(), c.Key)
		require.NoError(t, err)
		require.True(t, completed)
		require.Zero(t, b.left(t))
		m, err := b.Find(t.Context(), c.Key)
		require.NoError(t, err)
		require.NoError(t, m.Unreadable)
	})
}
