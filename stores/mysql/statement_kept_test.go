package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// A statement that is kept does what a new one would.

// onStatements gives the test a store, and a transaction of plain database/sql in a
// database of its own, which both have the table kept.
func onStatements(t *testing.T, change func(*driver.Config), test func(t *testing.T, c counted, tx func(id string) (*sql.Tx, stores.Attempt), plain *sql.Tx)) {
	t.Helper()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		s := c.another(t, change)
		const table = "CREATE TABLE kept (content LONGBLOB, at VARCHAR(100), label VARCHAR(100))"
		plainDB := openDB(t, mustParse(t, p.shared(t).NewDatabase(t)), change)
		for _, db := range []*sql.DB{c.admin, plainDB} {
			_, err := db.ExecContext(t.Context(), table)
			require.NoError(t, err)
		}
		plain, err := plainDB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = plain.Rollback() }()
		test(t, c, func(id string) (*sql.Tx, stores.Attempt) {
			a := begin(t, s, claimOf(id))
			return txOf(t, a), a
		}, plain)
	})
}

// Large values are sent ahead of the execution. Neither they nor the server's answer to
// them are the next message's, if it fails.
func TestValuesSentAheadAreNotTheNextMessages(t *testing.T) {
	t.Parallel()
	const packet = 64 << 10
	change := func(c *driver.Config) { c.MaxAllowedPacket = packet }
	late := time.Date(20260, 1, 1, 0, 0, 0, 0, time.UTC) // the driver has no text for it
	onStatements(t, change, func(t *testing.T, c counted, tx func(string) (*sql.Tx, stores.Attempt), _ *sql.Tx) {
		var most int // bytes of a value, for the server
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT @@max_allowed_packet").Scan(&most))
		const insert = "INSERT INTO kept VALUES (?, ?, ?)"
		for i, failing := range [][]any{
			{bytes.Repeat([]byte("1"), packet), late, "first"},
			{bytes.Repeat([]byte("1"), packet), strings.Repeat("too long", 100), "first"},
			{make([]byte, most+1), "now", "first"},
		} {
			first, a := tx(fmt.Sprint("first", i))
			_, err := first.ExecContext(t.Context(), insert, []byte("small"), "now", "first")
			require.NoError(t, err)
			_, err = first.ExecContext(t.Context(), insert, failing...)
			require.Error(t, err)
			require.NoError(t, a.Rollback(t.Context()))

			second, a := tx(fmt.Sprint("second", i))
			_, err = second.ExecContext(t.Context(), insert, []byte("two"), "now", fmt.Sprint("second", i))
			require.NoError(t, err)
			require.NoError(t, a.Commit(t.Context()))
			var content, at, label string
			require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT LEFT(content, 10), at, label FROM kept ORDER BY label DESC").Scan(&content, &at, &label))
			assert.Equal(t, [3]string{"two", "now", fmt.Sprint("second", i)}, [3]string{content, at, label})
		}
	})
}

// The servers keep in a statement what they took its parameters for.
func TestEarlierArgumentsChangeNoResult(t *testing.T) {
	t.Parallel()
	onStatements(t, nil, func(t *testing.T, _ counted, tx func(string) (*sql.Tx, stores.Attempt), plain *sql.Tx) {
		arguments := []any{1.5, int64(-7), uint64(math.MaxUint64), nil, "text", "1.5", "2", true, []byte{}, []byte(nil), time.Unix(0, 0), "18446744073709551616", int64(2)}
		kept, a := tx("types")
		ask := func(tx *sql.Tx, query string, arg any) string {
			var v any
			if err := tx.QueryRowContext(t.Context(), query, arg).Scan(&v); err != nil {
				return err.Error()
			}
			if b, ok := v.([]byte); ok {
				return fmt.Sprintf("%q", b)
			}
			return fmt.Sprintf("%T %[1]v", v)
		}
		for _, query := range []string{"SELECT ?", "SELECT -?", "SELECT ? + 0", "SELECT COALESCE(?, 1)", "SELECT CASE WHEN 1 THEN ? ELSE 1 END", "SELECT ? UNION SELECT 1 LIMIT 1"} {
			for range 2 {
				for _, arg := range arguments {
					assert.Equal(t, ask(plain, query, arg), ask(kept, query, arg), "%s of %T %[2]v", query, arg)
				}
			}
		}
		for _, args := range [][]any{{1, 2}, {sql.Named("a", 1)}, {complex(1, 2)}} {
			_, want := plain.ExecContext(t.Context(), "DO ?", args...)
			_, got := kept.ExecContext(t.Context(), "DO ?", args...)
			require.Error(t, want)
			require.EqualError(t, got, want.Error())
		}
		require.NoError(t, a.Rollback(t.Context()))
	})
}

// After USE, and in another mode, a text means something else than before.
func TestPreparedStatementsFollowTheSession(t *testing.T) {
	t.Parallel()
	onStatements(t, nil, func(t *testing.T, c counted, tx func(string) (*sql.Tx, stores.Attempt), _ *sql.Tx) {
		_, err := c.admin.ExecContext(t.Context(), "INSERT INTO kept (label) VALUES ('here')")
		require.NoError(t, err)
		kept, a := tx("session")
		ask := func(query string) (s string) {
			require.NoError(t, kept.QueryRowContext(t.Context(), query, 1).Scan(&s))
			return s
		}
		const literal, tables = `SELECT "label" FROM kept WHERE 1 = ?`, "SELECT COUNT(*) FROM tables WHERE 1 = ?"
		assert.Equal(t, "label", ask(literal))
		_, err = kept.ExecContext(t.Context(), "SET SESSION sql_mode = 'ANSI_QUOTES'")
		require.NoError(t, err)
		assert.Equal(t, "here", ask(literal))
		_, err = kept.ExecContext(t.Context(), "USE information_schema")
		require.NoError(t, err)
		var s string
		require.Error(t, kept.QueryRowContext(t.Context(), literal, 1).Scan(&s), "the table is in another database")
		assert.NotEmpty(t, ask(tables))
		require.NoError(t, a.Rollback(t.Context()))
	})
}

// Of a server that has room for few statements, a connection gives back its own first.
func TestPreparedStatementsMakeRoom(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMariaDB(t, testenv.WithMySQLSettings(map[string]string{"max_prepared_stmt_count": "5"}))
	s := openStore(t, mustParse(t, server.NewDatabase(t)))
	a := begin(t, s, claimOf("room"))
	for i := range 12 {
		var sum int
		require.NoError(t, txOf(t, a).QueryRowContext(t.Context(), fmt.Sprintf("SELECT %d + ?", i), 1).Scan(&sum))
		require.Equal(t, i+1, sum)
	}
	require.NoError(t, a.Commit(t.Context()))
}

// A goroutine of the handler's closes its statement while the store commits.
func TestStatementsCloseApartFromTheCommit(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for i := range 100 {
			a := begin(t, c, claimOf(fmt.Sprint(i)))
			prepared, err := txOf(t, a).PrepareContext(t.Context(), "INSERT INTO effect VALUES (?)")
			require.NoError(t, err)
			_, err = prepared.ExecContext(t.Context(), "once")
			require.NoError(t, err)
			closed := make(chan struct{})
			go func() { defer close(closed); _ = prepared.Close() }()
			require.NoError(t, a.Commit(t.Context()))
			<-closed
		}
		assert.Equal(t, 100, c.effects(t))
	})
}

// The first completion of a connection is prepared before it is sent. If the server does
// not answer that, nothing is committed, and the handler is not to blame.
func TestCompletionThatCannotBePreparedIsNoFailure(t *testing.T) {
	t.Parallel()
	c := newCounted(t, onMariaDB, true)
	a := begin(t, c, claimOf("frozen"))
	require.NoError(t, exec(t.Context(), a, effect))
	c.proxy.Freeze()
	defer c.proxy.Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := a.Commit(ctx)
	require.ErrorIs(t, err, stores.ErrNotCommitted)
	interruptible, _ := a.(stores.Interruptible)
	require.Error(t, interruptible.Interrupted())
	c.proxy.Thaw()
	assert.Equal(t, 0, c.effects(t))
}
