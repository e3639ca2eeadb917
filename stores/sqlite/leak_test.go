package sqlite

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// A goroutine that outlives its handler: what it does is either over before the commit,
// or refused; and a statement that runs makes the attempt fail, at once and for sure.
func TestLeakedGoroutine(t *testing.T) {
	t.Run("in a statement that no interrupt ends", func(t *testing.T) {
		o := open(t)
		a := o.begin(claimOf("a"))
		o.effect(a, "before")
		tx := txOf(t, a)
		done := make(chan error, 1)
		go func() {
			_, err := tx.Exec("INSERT INTO effects SELECT stand_still()")
			done <- err
		}()
		<-standing

		err := a.Commit(within(t, 100*time.Millisecond))
		require.ErrorIs(t, err, stores.ErrNotCommitted)
		require.ErrorIs(t, err, stores.ErrTxBusy)
		_, verdict, err := o.Begin(t.Context(), claimOf("a"))
		require.NoError(t, err)
		require.Equal(t, stores.InFlight, verdict.Outcome, "the key is not free before the transaction is over")
		resume <- struct{}{}
		require.Error(t, <-done)
		_, err = tx.Exec("INSERT INTO effects VALUES ('late')")
		require.ErrorIs(t, err, sql.ErrTxDone)
		require.Eventually(t, func() bool {
			a, verdict, err := o.Begin(t.Context(), claimOf("a"))
			return err == nil && verdict.Outcome == stores.Claimed && a.Rollback(t.Context()) == nil
		}, 30*time.Second, time.Millisecond)
		o.requireCounts(0, 0)
	})
	t.Run("in such a statement, of a handler that failed", func(t *testing.T) {
		o := open(t)
		a := o.begin(claimOf("a"))
		tx := txOf(t, a)
		done := make(chan error, 1)
		go func() {
			_, err := tx.Exec("INSERT INTO effects SELECT stand_still()")
			done <- err
		}()
		<-standing
		require.ErrorIs(t, a.Rollback(within(t, 50*time.Millisecond)), stores.ErrTxBusy)
		resume <- struct{}{}
		require.Error(t, <-done)
		require.Eventually(t, func() bool { return waiting(o) == 0 }, 30*time.Second, time.Millisecond)
		o.complete(claimOf("a"))
		o.requireCounts(1, 1)
	})
	t.Run("racing with the commit", func(t *testing.T) {
		o := open(t)
		for range 200 {
			before, effectsBefore := o.counts()
			a := o.begin(claimOf(rowName(before)))
			tx := txOf(t, a)
			done := make(chan int)
			go func() {
				n := 0
				for {
					if _, err := tx.Exec("INSERT INTO effects VALUES ('raced')"); err != nil {
						break
					}
					n++
				}
				_ = tx.Commit()
				done <- n
			}()
			err := a.Commit(t.Context())
			written := <-done
			rows, effects := o.counts()
			if err == nil {
				require.Equal(t, before+1, rows)
				require.Equal(t, effectsBefore+written, effects)
				continue
			}
			require.ErrorIs(t, err, stores.ErrNotCommitted)
			require.Equal(t, []int{before, effectsBefore}, []int{rows, effects})
		}
	})
	t.Run("ending the transaction", func(t *testing.T) {
		o := open(t)
		for range 300 {
			before, _ := o.counts()
			a := o.begin(claimOf(rowName(before)))
			o.effect(a, "one")
			tx := txOf(t, a)
			done := make(chan error)
			go func() { done <- tx.Commit() }()
			err := a.Commit(t.Context())
			require.Error(t, <-done, "nobody but the store commits")
			rows, effects := o.counts()
			require.Equal(t, rows, effects)
			if err == nil {
				require.Equal(t, before+1, rows)
			} else {
				require.ErrorIs(t, err, stores.ErrNotCommitted)
				require.Equal(t, before, rows)
			}
		}
	})
}

func rowName(n int) string { return "row-" + time.Duration(n).String() }
