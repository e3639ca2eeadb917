package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

var errSoldOut = errors.New("sold out")

// handle runs the statements in a typed handler that returns err.
func handle(t *testing.T, a stores.Attempt, err error, texts ...string) {
	t.Helper()
	msg := message.NewMessage("handled", nil)
	msg.SetContext(a.Context(t.Context()))
	require.ErrorIs(t, mysql.Handler(func(ctx context.Context, tx *sql.Tx, _ *message.Message) error {
		for _, text := range texts {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return err
	})(msg), err)
}

// endings are what follows a handler.
func endings(t *testing.T) map[string]func(stores.Attempt) error {
	t.Helper()
	return map[string]func(stores.Attempt) error{
		"rollback": func(a stores.Attempt) error { return a.Rollback(t.Context()) },
		"commit":   func(a stores.Attempt) error { return a.Commit(t.Context()) },
		"ended by the handler": func(a stores.Attempt) error {
			tx, _ := mysql.TxFromContext(a.Context(t.Context()))
			_ = tx.Rollback()
			return a.Commit(t.Context())
		},
	}
}

// requireEscaped fails unless the message of the attempt can never run again.
func requireEscaped(t *testing.T, s stores.Inbox, a stores.Attempt, c stores.Claim, ended error, what string) {
	t.Helper()
	require.ErrorIs(t, ended, stores.ErrTxEscaped, what)
	escaped, err := a.(stores.Escapable).Escaped(t.Context())
	require.NoError(t, err, what)
	assert.True(t, escaped, what)
	c.Take = 0
	again, v, err := s.Begin(t.Context(), c)
	require.NoError(t, err, what)
	assert.Equal(t, stores.Duplicate, v.Outcome, what)
	if again != nil {
		_ = again.Rollback(t.Context())
	}
}

// What a handler has committed without its claim, before it fails or not, is not done
// a second time.
func TestWhatIsCommittedWithoutTheClaimIsNotRunAgain(t *testing.T) {
	t.Parallel()
	loose := []string{
		effect, "PREPARE ending FROM 'ROLLBACK'", "EXECUTE ending", effect, "PREPARE ending FROM 'COMMIT'", "EXECUTE ending", effect,
	}
	byTurns(t, func(t *testing.T, p product) {
		for _, own := range []bool{true, false} {
			c := newCounted(t, p, own)
			committed := 0
			for name, end := range endings(t) {
				if name == "ended by the handler" && !own {
					continue // nothing can be asked then
				}
				for _, taken := range []bool{false, true} {
					what := fmt.Sprintf("%s, own %t, taken %t", name, own, taken)
					claim := claimOf(what)
					if taken {
						var err error
						claim.Take, err = c.Record(t.Context(), stores.Failure{
							Key: claim.Key, Fingerprint: claim.Fingerprint, Status: stores.StatusPending, Placement: stores.PlacementRedelivered, Attempts: 1,
						})
						require.NoError(t, err, what)
					}
					a := begin(t, c, claim)
					handle(t, a, errSoldOut, loose...)
					committed++
					requireEscaped(t, c, a, claim, end(a), what)
				}
			}
			assert.Equal(t, committed, c.effects(t))
			var failures int
			require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_failure").Scan(&failures))
			assert.Zero(t, failures)

			// A handler that does none of that, and fails, runs again.
			a := begin(t, c, claimOf("honest"))
			handle(t, a, errSoldOut, effect, "SET @a = 1")
			require.NoError(t, a.Rollback(t.Context()))
			require.NoError(t, begin(t, c, claimOf("honest")).Commit(t.Context()))
		}
	})
}

// A handler that hides a deadlock goes on in another transaction: what it commits there
// is not the deadlock's doing.
func TestCommitAfterADeadlockIsNotRunAgain(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for name, end := range endings(t) {
			claim := claimOf(name)
			a := begin(t, c, claim)
			require.Error(t, c.deadlocked(t, a))
			handle(t, a, nil, effect, "PREPARE ending FROM 'COMMIT'", "EXECUTE ending")
			requireEscaped(t, c, a, claim, end(a), name)
		}
	})
}

// On a *sql.DB of the caller's the typed handler tells what it was told.
func TestDeadlockThatAHandlerReturnsIsTheDatabases(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, false)
		a := begin(t, c, claimOf("deadlock"))
		deadlock := c.deadlocked(t, a)
		handle(t, a, deadlock)
		require.NoError(t, a.Rollback(t.Context()))
		require.ErrorIs(t, a.(stores.Interruptible).Interrupted(), deadlock)
		a = begin(t, c, claimOf("deadlock"))
		handle(t, a, context.DeadlineExceeded, effect)
		require.NoError(t, a.Rollback(t.Context()))
		require.NoError(t, a.(stores.Interruptible).Interrupted())
	})
}
