package mysql_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// A worker is about to put a message off that waits behind another one, which is taken
// over and completed just then. Nobody may think that the other one wakes the message.
func TestMessageIsWokenAlthoughItWasLockedWhenItsPredecessorEnded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		worker := c.another(t, nil)
		claims := make(map[string]stores.Claim)
		for _, id := range []string{"first", "second"} {
			claim := claimOf(id)
			f := stores.Failure{
				Key: claim.Key, Fingerprint: claim.Fingerprint, Status: stores.StatusPending, Placement: stores.PlacementParked,
				Attempts: 1, OrderKey: []byte("order"), Content: &stores.Content{State: stores.ContentKept},
			}
			if id == "first" {
				f.DueIn = time.Hour
			}
			var err error
			claim.OrderKey = f.OrderKey
			claim.Take, err = c.Record(t.Context(), f)
			require.NoError(t, err)
			claims[id] = claim
		}
		holder, err := c.admin.Conn(t.Context())
		require.NoError(t, err)
		defer holder.Close()
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
		query := stores.DueQuery{Consumer: billing, Limit: 10, Reserve: time.Minute}
		go func() {
			_, err := worker.Due(t.Context(), query)
			put <- err
		}()
		testenv.Eventually(t, "the worker stands still in the middle", func() bool {
			var waiting int
			err := holder.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User lock'").Scan(&waiting)
			return err == nil && waiting == 1
		})

		complete := func() bool {
			a, v, err := c.Begin(t.Context(), claims["first"])
			require.NoError(t, err)
			if v.Outcome != stores.Claimed {
				return false
			}
			require.NoError(t, a.Commit(t.Context()))
			return true
		}
		done := complete()
		_, err = holder.ExecContext(t.Context(), "DO RELEASE_LOCK('"+name+"')")
		require.NoError(t, err)
		require.NoError(t, <-put)
		require.True(t, done || complete(), "the first message cannot be taken over after the worker has gone on")
		due, err := c.Due(t.Context(), query)
		require.NoError(t, err)
		require.Len(t, due, 1, "due after the first has ended; the second waits until its own time is up")
		require.Equal(t, "second", string(due[0].Key.ID))
	})
}
