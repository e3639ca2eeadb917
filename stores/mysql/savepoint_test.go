package mysql_test

import (
	"context"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

const lockNow = "SELECT n FROM storetest_pair WHERE id = 1 FOR UPDATE NOWAIT"

// TestFailureUndoneBySavepointIsForgotten: what was undone says nothing about how the
// attempt has ended. A deadlock has ended the transaction, and with it the savepoints.
func TestFailureUndoneBySavepointIsForgotten(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for _, text := range []string{"CREATE TABLE storetest_pair (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO storetest_pair VALUES (1, 0), (2, 0)"} {
			_, err := c.admin.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		other, err := c.admin.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = other.ExecContext(t.Context(), "SELECT n FROM storetest_pair WHERE id = 1 FOR UPDATE")
		require.NoError(t, err)
		interrupted := func(a stores.Attempt) error {
			require.NoError(t, a.Rollback(t.Context()))
			return a.(stores.Interruptible).Interrupted()
		}
		fails := func(a stores.Attempt, text string) {
			require.Error(t, exec(t.Context(), a, text), text)
		}
		passes := func(a stores.Attempt, text string) {
			require.NoError(t, exec(t.Context(), a, text), text)
		}

		a := begin(t, c, claimOf("undone"))
		passes(a, "SAVEPOINT a")
		fails(a, lockNow)
		passes(a, "ROLLBACK TO SAVEPOINT a")
		passes(a, effect)
		require.NoError(t, interrupted(a))

		a = begin(t, c, claimOf("not undone"))
		fails(a, lockNow)
		passes(a, "SAVEPOINT b")
		passes(a, "ROLLBACK TO b") // which is younger
		require.Error(t, interrupted(a))

		a = begin(t, c, claimOf("behind another failure"))
		passes(a, "SAVEPOINT a")
		fails(a, "INSERT INTO storetest_pair VALUES (2, 0)")
		fails(a, lockNow)
		require.Error(t, interrupted(a), "a lock behind a duplicate key that the handler knew what to do about")
		require.NoError(t, other.Rollback())

		a = begin(t, c, claimOf("deadlock"))
		passes(a, "SAVEPOINT a")
		var number *driver.MySQLError
		require.ErrorAs(t, c.deadlocked(t, a), &number)
		require.Equal(t, uint16(1213), number.Number)
		fails(a, "ROLLBACK TO SAVEPOINT a")
		passes(a, "SAVEPOINT a")
		passes(a, "ROLLBACK TO SAVEPOINT a")
		require.ErrorAs(t, interrupted(a), &number)
	})
}

// A prepared statement undoes as well as text does, where the server prepares it.
func TestPreparedRollbackToSavepoint(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		_, err := c.admin.ExecContext(t.Context(), "CREATE TABLE storetest_pair (id INT PRIMARY KEY)")
		require.NoError(t, err)
		a := begin(t, c, claimOf("a"))
		tx, _ := mysql.TxFromContext(a.Context(t.Context()))
		require.NoError(t, exec(t.Context(), a, "SAVEPOINT a"))
		require.Error(t, exec(t.Context(), a, "INSERT INTO nowhere VALUES (1)"))
		stmt, err := tx.PrepareContext(context.WithoutCancel(t.Context()), "ROLLBACK TO SAVEPOINT a")
		if err == nil {
			defer stmt.Close()
			_, err = stmt.ExecContext(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, a.Rollback(t.Context()))
	})
}
