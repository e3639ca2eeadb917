package sqlite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kept returns the texts whose statements the writer connection keeps.
func (o opened) kept() (texts []string) {
	o.t.Helper()
	a := o.begin(claimOf("kept"))
	for _, s := range a.(*attempt).conn.kept.last {
		texts = append(texts, s.text)
	}
	require.NoError(o.t, a.Rollback(o.t.Context()))
	return texts
}

func TestStatementsOfHandlersAreKept(t *testing.T) {
	t.Parallel()
	t.Run("those that were used last", func(t *testing.T) {
		t.Parallel()
		o := open(t)
		text := func(i int) string { return fmt.Sprintf("INSERT INTO effects VALUES (%d)", i) }
		for i := range maxKeptStatements + 8 {
			a := o.begin(claimOf(rowName(i)))
			for _, text := range []string{text(0), text(i)} { // the first remains
				_, err := txOf(t, a).Exec(text)
				require.NoError(t, err)
			}
			require.NoError(t, a.Commit(t.Context()))
		}
		kept := o.kept()
		require.Len(t, kept, maxKeptStatements)
		require.Contains(t, kept, text(0))
		require.NotContains(t, kept, text(1))
		o.requireCounts(maxKeptStatements+8, 2*(maxKeptStatements+8))
	})
	t.Run("no long ones", func(t *testing.T) {
		t.Parallel()
		o := open(t)
		a := o.begin(claimOf("a"))
		long := "INSERT INTO effects VALUES ('" + strings.Repeat("x", maxKeptText) + "')"
		_, err := txOf(t, a).Exec(long)
		require.NoError(t, err)
		require.NoError(t, a.Commit(t.Context()))
		require.NotContains(t, o.kept(), long)
		o.requireCounts(1, 1)
	})
	t.Run("none that failed", func(t *testing.T) {
		t.Parallel()
		o := open(t)
		a := o.begin(claimOf("a"))
		tx := txOf(t, a)
		_, err := tx.Exec("CREATE TABLE once (id INTEGER PRIMARY KEY)")
		require.NoError(t, err)
		const insert = "INSERT INTO once VALUES (?)"
		for i := range 3 {
			_, err = tx.Exec(insert, 1)
			require.Equal(t, i > 0, err != nil, "%v", err)
		}
		_, err = tx.Exec(insert, 2)
		require.NoError(t, err)
		_, err = tx.Exec(insert, 1)
		require.Error(t, err)
		require.NoError(t, a.Commit(t.Context()))
		require.NotContains(t, o.kept(), insert)
	})
	t.Run("with other tables than before", func(t *testing.T) {
		t.Parallel()
		o := open(t)
		columns := func(id string, before ...string) int {
			a := o.begin(claimOf(id))
			tx := txOf(t, a)
			for _, text := range before {
				_, err := tx.Exec(text)
				require.NoError(t, err)
			}
			rows, err := tx.Query("SELECT * FROM effects")
			require.NoError(t, err)
			names, err := rows.Columns()
			require.NoError(t, err)
			require.NoError(t, rows.Close()) //nolint:sqlclosecheck // before the commit
			require.NoError(t, rows.Err())
			require.NoError(t, a.Commit(t.Context()))
			return len(names)
		}
		require.Equal(t, 1, columns("a"))
		require.Equal(t, 2, columns("b", "ALTER TABLE effects ADD COLUMN more TEXT"))
		require.Equal(t, 1, columns("c", "DROP TABLE effects", "CREATE TABLE effects (note TEXT)"))
	})
}

// A handler reads the rows of a query, and sends the same query for each of them.
func TestAKeptStatementIsUsedOnceAtATime(t *testing.T) {
	t.Parallel()
	o := open(t)
	const query = "SELECT note FROM effects WHERE note > ? ORDER BY note"
	for i := range 3 {
		a := o.begin(claimOf(rowName(i)))
		tx := txOf(t, a)
		if i == 0 {
			_, err := tx.Exec("INSERT INTO effects VALUES ('a'), ('b'), ('c')")
			require.NoError(t, err)
		}
		var pairs []string
		outer, err := tx.Query(query, "")
		require.NoError(t, err)
		for outer.Next() {
			var note string
			require.NoError(t, outer.Scan(&note))
			inner, err := tx.Query(query, note)
			require.NoError(t, err)
			for inner.Next() {
				var later string
				require.NoError(t, inner.Scan(&later))
				pairs = append(pairs, note+later)
			}
			require.NoError(t, inner.Err())
			require.NoError(t, inner.Close()) //nolint:sqlclosecheck // before the next query
		}
		require.NoError(t, outer.Err())
		require.NoError(t, outer.Close()) //nolint:sqlclosecheck // before the commit
		require.Equal(t, []string{"ab", "ac", "bc"}, pairs)
		require.NoError(t, a.Commit(t.Context()))
	}
}
