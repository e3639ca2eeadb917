package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestClaimCompleteDuplicate(t *testing.T) {
	o := open(t)
	claim := claimOf("a")
	claim.TraceParent, _ = stores.ParseTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	before := time.Now().Add(-time.Millisecond)
	o.complete(claim)
	for _, look := range []bool{false, true} {
		verdict := o.answer(claim, look)
		require.Equal(t, stores.Duplicate, verdict.Outcome)
		require.Equal(t, claim.Fingerprint, verdict.Fingerprint)
		require.Equal(t, claim.TraceParent, verdict.TraceParent)
		require.False(t, verdict.FingerprintUnknown)
		require.WithinRange(t, verdict.CompletedAt, before, time.Now().Add(time.Millisecond))
	}
	o.requireCounts(1, 1)
}

func TestRollback(t *testing.T) {
	o := open(t)
	a := o.begin(claimOf("a"))
	o.effect(a, "undone")
	require.NoError(t, a.Rollback(t.Context()))
	require.NoError(t, a.Rollback(t.Context()))
	require.ErrorIs(t, a.Commit(t.Context()), stores.ErrNotCommitted)
	o.requireCounts(0, 0)
	o.complete(claimOf("a"))
}

func TestConflict(t *testing.T) {
	o := open(t)
	first := claimOf("a")
	o.complete(first)
	hmac := stores.NewFingerprint(stores.NewFingerprintKey(7, []byte("k")), []byte("a"))
	for name, c := range map[string]struct {
		fingerprint stores.Fingerprint
		outcome     stores.Outcome
		unknown     bool
	}{
		"another message":   {fingerprintOf("b"), stores.Conflict, false},
		"another algorithm": {hmac, stores.Duplicate, true},
		"none":              {stores.Fingerprint{}, stores.Duplicate, true},
	} {
		for _, look := range []bool{false, true} {
			verdict := o.answer(stores.Claim{Key: first.Key, Fingerprint: c.fingerprint}, look)
			require.Equal(t, c.outcome, verdict.Outcome, name)
			require.Equal(t, c.unknown, verdict.FingerprintUnknown, name)
			require.Equal(t, first.Fingerprint, verdict.Fingerprint, name)
		}
	}
	o.requireCounts(1, 1)
}

// A duplicate leaves the file and its log as they are.
func TestDuplicateWritesNothing(t *testing.T) {
	o := open(t)
	o.complete(claimOf("a"))
	o.verdict(claimOf("a"))
	wal := func() string {
		b, err := os.ReadFile(o.path + "-wal")
		require.NoError(t, err)
		return string(b)
	}
	before := wal()
	require.NotEmpty(t, before)
	for range 20 {
		require.Equal(t, stores.Duplicate, o.verdict(claimOf("a")).Outcome)
	}
	require.Equal(t, before, wal())
}

// However ids differ, they are different; however they look, they are kept.
func TestHostileIDs(t *testing.T) {
	o := open(t)
	long := strings.Repeat("x", stores.MaxIDBytes-1)
	random := make([]byte, stores.MaxIDBytes)
	_, _ = rand.Read(random)
	ids := []string{
		"a", "A", "a ", " a", "a\t", "a\x00", "a\x00b", "\x00", "\xff\xfe", "\xff", "ä", "a\u0308", "1", "1.0", "01",
		"NULL", "' OR 1=1 --", "%", "_", long + "y", long + "Y", string(random),
	}
	for _, id := range ids {
		o.complete(claimOf(id))
	}
	for _, id := range ids {
		require.Equal(t, stores.Duplicate, o.verdict(claimOf(id)).Outcome, "%q", id)
	}
	o.requireCounts(len(ids), len(ids))
	for _, id := range []string{"", long + "yz", strings.Repeat("x", 10<<10)} {
		a, _, err := o.Begin(t.Context(), claimOf(id))
		require.ErrorIs(t, err, stores.ErrInvalidKey)
		require.Nil(t, a)
	}
}

func TestConsumersAreApart(t *testing.T) {
	o := open(t)
	other := stores.Consumer{Service: billing.Service, Handler: "other"}
	claim := claimOf("a")
	claim.Key.Consumer = other
	_, _, err := o.Begin(t.Context(), claim)
	require.ErrorIs(t, err, stores.ErrNotRegistered)
	require.NoError(t, o.Register(t.Context(), stores.Registration{Consumer: other}))
	o.complete(claimOf("a"))
	o.complete(claim)
	o.requireCounts(2, 2)

	claim.Key.Consumer.Service = "a/b"
	_, _, err = o.Begin(t.Context(), claim)
	require.ErrorIs(t, err, stores.ErrInvalidKey)
}

func TestManyDeliveriesOfOneKey(t *testing.T) {
	o := open(t)
	var running, runs, inFlight atomic.Int32
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for {
				a, verdict, err := o.Begin(t.Context(), claimOf("a"))
				if err != nil {
					t.Error(err)
					return
				}
				switch verdict.Outcome {
				case stores.Duplicate:
					return
				case stores.InFlight:
					inFlight.Add(1)
				case stores.Claimed:
					if running.Add(1) != 1 {
						t.Error("two attempts at once")
					}
					n := runs.Add(1)
					_, err := a.(*attempt).tx.Exec("INSERT INTO effects VALUES ('one')")
					for o := inFlight.Load(); inFlight.Load() < o+10; { // until others have asked
						runtime.Gosched()
					}
					running.Add(-1)
					if n%3 != 0 { // two of three fail
						_ = a.Rollback(t.Context())
					} else if err == nil {
						err = a.Commit(t.Context())
					}
					if err != nil {
						t.Error(err)
						return
					}
				default:
					t.Errorf("outcome %v", verdict.Outcome)
					return
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 3, runs.Load())
	o.requireCounts(1, 1)
}

func TestManyKeys(t *testing.T) {
	o := open(t)
	const keys, deliveries = 50, 3
	var wg sync.WaitGroup
	for i := range keys * deliveries {
		wg.Go(func() {
			claim := claimOf(fmt.Sprint("key ", i%keys))
			for {
				a, verdict, err := o.Begin(t.Context(), claim)
				switch {
				case err != nil:
					t.Error(err)
					return
				case verdict.Outcome == stores.Claimed:
					_, _ = a.(*attempt).tx.Exec("INSERT INTO effects VALUES ('one')")
					if err := a.Commit(t.Context()); err != nil {
						t.Error(err)
					}
					return
				case verdict.Outcome == stores.Duplicate:
					return
				}
			}
		})
	}
	wg.Wait()
	o.requireCounts(keys, keys)
}

// While a handler runs: its own key is answered, completed keys are found, other new
// keys wait, no longer than their contexts.
func TestWaitingForTheWriter(t *testing.T) {
	o := open(t)
	o.complete(claimOf("completed"))
	a := o.begin(claimOf("slow"))
	require.Equal(t, stores.InFlight, o.verdict(claimOf("slow")).Outcome)
	require.Equal(t, stores.Duplicate, o.verdict(claimOf("completed")).Outcome)
	conflict := claimOf("completed")
	conflict.Fingerprint = fingerprintOf("other")
	require.Equal(t, stores.Conflict, o.verdict(conflict).Outcome)
	require.Equal(t, stores.Conflict, o.answer(conflict, true).Outcome)
	require.Equal(t, stores.Claimable, o.answer(claimOf("slow"), true).Outcome)

	_, _, err := o.Begin(within(t, 30*time.Millisecond), claimOf("new"))
	require.ErrorIs(t, err, stores.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	var ran atomic.Int32
	var wg sync.WaitGroup
	for _, id := range []string{"1", "2", "3"} {
		wg.Go(func() {
			a, _, err := o.Begin(t.Context(), claimOf(id))
			if err != nil {
				t.Error(err)
				return
			}
			ran.Add(1)
			if err := a.Commit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return waiting(o) == 4 }, 30*time.Second, time.Millisecond)
	<-time.After(2 * lookAfter) // they have looked
	require.Zero(t, ran.Load())
	require.NoError(t, a.Commit(t.Context()))
	wg.Wait()
	require.Equal(t, int32(3), ran.Load())
}

// waiting is how many keys are in flight.
func waiting(o opened) int {
	o.flights.mu.Lock()
	defer o.flights.mu.Unlock()
	return len(o.flights.places)
}

// The context of Begin has no say in the attempt.
func TestAttemptOutlivesBegin(t *testing.T) {
	o := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	a, _, err := o.Begin(ctx, claimOf("a"))
	require.NoError(t, err)
	cancel()
	<-time.After(20 * time.Millisecond) // database/sql would roll back in the background
	o.effect(a, "one")
	require.NoError(t, a.Commit(t.Context()))
	o.requireCounts(1, 1)

	_, _, err = o.Begin(ctx, claimOf("b"))
	require.ErrorIs(t, err, stores.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
}

func TestCommitWithEndedContext(t *testing.T) {
	o := open(t)
	a := o.begin(claimOf("a"))
	o.effect(a, "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := a.Commit(ctx)
	require.ErrorIs(t, err, stores.ErrNotCommitted)
	require.ErrorIs(t, err, context.Canceled)
	o.requireCounts(0, 0)
	o.complete(claimOf("a"))
}

func TestClosed(t *testing.T) {
	o := open(t)
	a := o.begin(claimOf("a"))
	o.effect(a, "one")
	waiter := make(chan error)
	go func() {
		_, _, err := o.Begin(context.Background(), claimOf("b"))
		waiter <- err
	}()
	require.Eventually(t, func() bool { return waiting(o) == 2 }, 30*time.Second, time.Millisecond)
	require.NoError(t, o.Close())
	require.NoError(t, o.Close())
	require.ErrorIs(t, <-waiter, stores.ErrClosed)
	require.NoError(t, a.Commit(t.Context()), "an attempt that runs can still be ended")

	_, _, err := o.Begin(t.Context(), claimOf("c"))
	require.ErrorIs(t, err, stores.ErrClosed)
	require.ErrorIs(t, o.Register(t.Context(), stores.Registration{Consumer: billing}), stores.ErrClosed)
	require.ErrorIs(t, o.Quarantine(t.Context(), stores.Quarantined{Consumer: billing}), stores.ErrClosed)
	require.ErrorIs(t, o.Validate(t.Context()), stores.ErrClosed)
	_, err = o.Migrate(t.Context())
	require.ErrorIs(t, err, stores.ErrClosed)
	_, err = o.Resolve(t.Context(), claimOf("a").Key)
	require.ErrorIs(t, err, stores.ErrClosed)

	again := openAt(t, o.path)
	again.requireCounts(1, 1)
}

// Writes of the program are commits like any other, and a handler waits for them; one
// in a handler's transaction waits for the handler.
func TestProgramsOwnWrites(t *testing.T) {
	o := open(t, func(c *Config) { c.BusyTimeout = 50 * time.Millisecond })
	_, err := o.DB().Exec("INSERT INTO effects VALUES ('the program')")
	require.NoError(t, err)
	o.requireCounts(0, 1)

	tx, err := o.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, _, err = o.Begin(t.Context(), claimOf("a"))
	require.ErrorIs(t, err, stores.ErrUnavailable)
	require.NoError(t, tx.Commit())

	a := o.begin(claimOf("a"))
	_, err = o.DB().Exec("INSERT INTO effects VALUES ('beside the handler')")
	require.ErrorContains(t, err, "SQLITE_BUSY")
	require.NoError(t, a.Commit(t.Context()))
	o.requireCounts(1, 1)
}

// Claims that wait for another process give up together, not one after the other.
func TestManyWaitForAnotherProcess(t *testing.T) {
	o := open(t, func(c *Config) { c.BusyTimeout = 500 * time.Millisecond })
	tx, err := o.DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			_, _, err := o.Begin(t.Context(), claimOf(fmt.Sprint(i)))
			if !errors.Is(err, stores.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Less(t, time.Since(begun), 8*500*time.Millisecond)
	require.NoError(t, tx.Rollback())
	o.complete(claimOf("0"))
}

func TestCapabilities(t *testing.T) {
	require.Equal(t, stores.Capabilities{System: "sqlite", SingleWriter: true}, open(t).Capabilities())
}

// A status of a later version is no completion.
func TestUnknownStatus(t *testing.T) {
	o := open(t)
	_, err := o.DB().Exec("INSERT INTO millpond_inbox (consumer, message_id, status) SELECT id, x'61', 9 FROM millpond_consumer UNION SELECT id, x'62', 3 FROM millpond_consumer")
	require.NoError(t, err)
	for _, id := range []string{"a", "b"} { // what is known of the failure of b is gone
		_, _, err = o.Begin(t.Context(), claimOf(id))
		require.ErrorIs(t, err, stores.ErrUnavailable)
		_, err = o.Look(t.Context(), claimOf(id).Key, fingerprintOf(id))
		require.ErrorIs(t, err, stores.ErrUnavailable)
		_, err = o.Find(t.Context(), claimOf(id).Key)
		require.ErrorIs(t, err, stores.ErrUnavailable)
	}
}

// Databases that the program opens by itself are none of the store's business.
func TestOtherDatabasesAreUntouched(t *testing.T) {
	o := open(t)
	o.complete(claimOf("a"))
	db, err := sql.Open("sqlite", o.path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("INSERT INTO effects VALUES ('another handle')")
	require.NoError(t, err)
	o.requireCounts(1, 2)
}
