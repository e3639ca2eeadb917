package mysql_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// txOf is the transaction of an attempt.
func txOf(t *testing.T, a stores.Attempt) *sql.Tx {
	t.Helper()
	tx, ok := mysql.TxFromContext(a.Context(t.Context()))
	require.True(t, ok)
	return tx
}

// A handler's statement with parameters takes two trips on a connection of database/sql:
// it is prepared each time.
func TestStatementsWithParametersArePreparedOnce(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		const insert = "INSERT INTO effect VALUES (?)"
		alone := c.cost(func() {
			tx, err := c.alone.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(t.Context(), insert, "alone")
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		})
		n := 0
		inbox := c.cost(func() {
			n++
			a := begin(t, c, claimOf(fmt.Sprint(n)))
			_, err := txOf(t, a).ExecContext(t.Context(), insert, fmt.Sprint(n))
			require.NoError(t, err)
			require.NoError(t, a.Commit(t.Context()))
		})
		assert.Equal(t, 4, alone.RoundTrips)
		assert.Equal(t, map[bool]int{true: 3, false: 4}[p.maria()], inbox.RoundTrips)
		var labels int
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(DISTINCT label) FROM effect WHERE label <> 'alone'").Scan(&labels))
		assert.Equal(t, n, labels)
	})
}

// statementsOf is how many statements a session has prepared, and how many of them are open.
func statementsOf(t *testing.T, tx *sql.Tx) (ever, open int) {
	t.Helper()
	count := func(what string) int { return number(t, tx, "SHOW SESSION STATUS LIKE 'Com_stmt_"+what+"'") }
	ever = count("prepare")
	return ever, ever - count("close")
}

func TestPreparedStatementsAreBounded(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		a := begin(t, c, claimOf("many"))
		tx := txOf(t, a)
		ask := func(i int) {
			var sum int
			require.NoError(t, tx.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %d + ?", i), 1).Scan(&sum))
			require.Equal(t, i+1, sum)
		}
		before, _ := statementsOf(t, tx)
		for i := range 100 {
			ask(i)
			ask(0) // which is never the oldest
		}
		ever, open := statementsOf(t, tx)
		if p.maria() {
			assert.Equal(t, 100, ever-before)
		}
		assert.LessOrEqual(t, open, 32+2, "the store has two of its own")
		ask(1)
		require.NoError(t, a.Rollback(t.Context()))
	})
}

func columnsOf(t *testing.T, tx *sql.Tx, query string, args ...any) []string {
	t.Helper()
	rows, err := tx.QueryContext(t.Context(), query, args...)
	require.NoError(t, err)
	defer rows.Close()
	names, err := rows.Columns()
	require.NoError(t, errors.Join(err, rows.Err()))
	return names
}

func TestPreparedStatementsFollowTheTable(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		columns := func(id string) []string {
			a := begin(t, c, claimOf(id))
			names := columnsOf(t, txOf(t, a), "SELECT * FROM effect WHERE label <> ?", "none")
			require.NoError(t, a.Commit(t.Context()))
			return names
		}
		assert.Equal(t, []string{"label"}, columns("before"))
		_, err := c.admin.ExecContext(t.Context(), "ALTER TABLE effect ADD COLUMN amount INT")
		require.NoError(t, err)
		assert.Equal(t, []string{"label", "amount"}, columns("after"))
	})
}

// openStore opens a store on a database of its own, with parameters of the driver's and
// of the sessions.
func openStore(t *testing.T, config *driver.Config) *mysql.Store {
	t.Helper()
	s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	return s
}

func isDuplicate(t *testing.T, s stores.Inbox, c stores.Claim) {
	t.Helper()
	_, v, err := s.Begin(t.Context(), c)
	require.NoError(t, err)
	assert.Equal(t, stores.Duplicate, v.Outcome)
}

// foreign is an id that no character set but a binary one leaves as it is.
const foreign = "id \xff\x00\xc3\x28 \u00e9 \\' "

func TestServerThatPreparesNothing(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMariaDB(t, testenv.WithMySQLSettings(map[string]string{"max_prepared_stmt_count": "0"}))
	config := mustParse(t, server.NewDatabase(t))
	config.InterpolateParams = true
	s := openStore(t, config)
	for range 2 {
		claim := claimOf(rand.Text() + foreign)
		a := begin(t, s, claim)
		var sum int
		require.NoError(t, txOf(t, a).QueryRowContext(t.Context(), "SELECT 1 + ?", 1).Scan(&sum))
		require.NoError(t, a.Commit(t.Context()))
		isDuplicate(t, s, claim)
	}
}

// What is bound to a prepared statement goes through the character sets of the session.
func TestCharacterSetsChangeNoID(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		address := p.shared(t).NewDatabase(t)
		s := openStore(t, mustParse(t, address))
		config := mustParse(t, address)
		require.NoError(t, config.Apply(driver.Charset("latin1", "")))
		other := openStore(t, config)
		for i, pair := range [][2]*mysql.Store{{s, other}, {other, s}} {
			claim := claimOf(fmt.Sprint(foreign, i))
			a := begin(t, pair[0], claim)
			require.NoError(t, a.Commit(t.Context()))
			isDuplicate(t, pair[1], claim)
		}
		claim := claimOf(foreign + "of a handler")
		a := begin(t, s, claim)
		_, err := txOf(t, a).ExecContext(t.Context(), "SET character_set_connection = ucs2, character_set_client = latin1")
		require.NoError(t, err)
		require.NoError(t, a.Commit(t.Context()))
		isDuplicate(t, other, claim)
	})
}
