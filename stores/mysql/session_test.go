package mysql_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

func TestLocksAndVariablesOfTheSessionReachNoOtherMessage(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for text, found := range map[string]string{
			"DO GET_LOCK('leftover', 0)":          "SELECT IS_USED_LOCK('leftover') IS NOT NULL",
			"DO `get_lock` ('quoted', 0)":         "SELECT IS_USED_LOCK('quoted') IS NOT NULL",
			"SELECT @leftover := 5":               "SELECT @leftover IS NOT NULL",
			"SELECT 1 -- it's\n, @commented := 5": "SELECT @commented IS NOT NULL",
		} {
			a := begin(t, c, claimOf(text))
			require.NoError(t, exec(t.Context(), a, text))
			require.NoError(t, a.Commit(t.Context()))
			a = begin(t, c, claimOf("next to "+text))
			tx, _ := mysql.TxFromContext(a.Context(t.Context()))
			var met bool
			require.Eventually(t, func() bool { // the server takes a moment to notice that a connection is closed
				require.NoError(t, tx.QueryRowContext(t.Context(), found).Scan(&met))
				return !met
			}, 30*time.Second, 5*time.Millisecond, text)
			require.NoError(t, a.Rollback(t.Context()))
		}
	})
}

// Under NO_BACKSLASH_ESCAPES a backslash hides nothing that comes after it.
func TestVariableBehindABackslashReachesNoOtherMessage(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		s, err := newCounted(t, p, true).with(t, true, "sql_mode=%27NO_BACKSLASH_ESCAPES,STRICT_TRANS_TABLES%27", mysql.Config{MaxOpenConns: 1})
		require.NoError(t, err)
		run := func(id, text string, into any) {
			a, v, err := s.Begin(t.Context(), claimOf(id))
			require.NoError(t, err)
			require.Equal(t, stores.Claimed, v.Outcome)
			tx, _ := mysql.TxFromContext(a.Context(t.Context()))
			scanned := tx.QueryRowContext(t.Context(), text).Scan(into)
			require.NoError(t, a.Commit(t.Context()))
			require.NoError(t, scanned)
		}
		var text string
		run("sets", `SELECT concat('a\', @leftover := 5)`, &text)
		var met bool
		run("next", "SELECT @leftover IS NOT NULL", &met)
		require.False(t, met)
	})
}
