package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// number returns a whole number that the server is asked for, in the last column.
func number(t *testing.T, on interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, query string,
) int {
	t.Helper()
	var name, value string
	require.NoError(t, on.QueryRowContext(t.Context(), query).Scan(&name, &value))
	n, err := strconv.Atoi(value)
	require.NoError(t, err)
	return n
}

const (
	askID     = "SELECT 'id', CONNECTION_ID()"
	askUptime = "SHOW GLOBAL STATUS LIKE 'Uptime'"
)

func closeForGood(c *sql.Conn) { _ = c.Raw(func(any) error { return driver.ErrBadConn }) }

// A server that has started again gives its connections the ids of those before. An
// attempt that was cut off must not end the one that has its id now.
func TestAttemptOfAnEarlierServerEndsNobodyElses(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMariaDB(t)
	config := mustParse(t, server.NewDatabase(t))
	s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	others := openDB(t, config, nil)
	for range 200 { // more than a server that starts needs for itself
		conn, err := others.Conn(t.Context())
		require.NoError(t, err)
		closeForGood(conn)
	}
	a := begin(t, s, claimOf("cut off"))
	tx, _ := mysql.TxFromContext(a.Context(t.Context()))
	id := number(t, tx, askID)

	// A server tells its age in whole seconds.
	for born := number(t, s.DB(), askUptime); number(t, s.DB(), askUptime) < born+2; {
		require.NoError(t, t.Context().Err())
	}
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start(t.Context()))

	deadline := time.Now().Add(20 * time.Second)
	var other *sql.Conn
	for {
		require.True(t, time.Now().Before(deadline), "no connection got the id %d", id)
		other, err = others.Conn(t.Context())
		require.NoError(t, err)
		n := number(t, other, askID)
		require.LessOrEqual(t, n, id, "the id %d went to somebody else", id)
		if n == id {
			break
		}
		closeForGood(other)
	}
	defer func() { _ = other.Close() }()

	require.Error(t, a.Rollback(t.Context()))
	var one int
	assert.NoError(t, other.QueryRowContext(t.Context(), "SELECT 1").Scan(&one), "it was ended")
}
