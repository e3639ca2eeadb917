package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/batchtest"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// sharing is an inbox whose handler shares transactions, and its store.
type sharing struct {
	*batchtest.Inbox

	counted counted
}

func newSharing(t *testing.T, p product, change ...func(*middleware.InboxConfig)) *sharing {
	t.Helper()
	s := &sharing{counted: newCounted(t, p, true)}
	store, err := s.counted.with(t, true, "", mysql.Config{MaxOpenConns: 30})
	require.NoError(t, err)
	s.Inbox = batchtest.New(t, batchtest.Database{Store: store, Effects: func(ctx context.Context) (labels []string, err error) {
		rows, err := s.counted.admin.QueryContext(ctx, "SELECT label FROM effect")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var label string
			if err := rows.Scan(&label); err != nil {
				return nil, err
			}
			labels = append(labels, label)
		}
		return labels, rows.Err()
	}}, append([]func(*middleware.InboxConfig){func(c *middleware.InboxConfig) {
		c.BatchByHandler[batchtest.Handler] = middleware.BatchConfig{From: 2, Time: 5 * time.Second}
	}}, change...)...)
	return s
}

func effectOf(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (?)", msg.UUID)
	return err
}

var errRefused = errors.New("refused")

// Whatever a handler does to its transaction happens to its message alone.
func TestDishonestHandlersInBatches(t *testing.T) {
	t.Parallel()
	sends := func(text string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, text); return err }
	}
	hides := func(text string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error { _, _ = tx.ExecContext(ctx, text); return nil }
	}
	type kind struct {
		batchtest.Act

		do func(ctx context.Context, tx *sql.Tx) error
	}
	var (
		fails  = batchtest.Act{Seen: batchtest.Fails}
		loses  = batchtest.Act{Seen: batchtest.Loses}
		apart  = batchtest.Act{Seen: batchtest.Apart, Runs: true}
		keeps  = batchtest.Act{Seen: batchtest.Keeps, Runs: true}
		doomed = batchtest.Act{Seen: batchtest.Apart} // it fails in a transaction of its own, too
	)
	acts := make(map[string]batchtest.Act)
	for name, k := range map[string]kind{
		"fails":       {fails, func(context.Context, *sql.Tx) error { return errRefused }},
		"panics":      {fails, func(context.Context, *sql.Tx) error { panic("at the disco") }},
		"exits":       {fails, func(context.Context, *sql.Tx) error { runtime.Goexit(); return nil }},
		"bad SQL":     {fails, sends("SELECT nothing")},
		"commits":     {fails, func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }},
		"commits SQL": {doomed, hides("COMMIT")},
		"DDL":         {doomed, sends("CREATE TABLE IF NOT EXISTS ddl (n INT)")},
		"leaves rows": {loses, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, numbers(50_000)+" SELECT n FROM numbers") //nolint:sqlclosecheck,rowserrcheck // it is left open
			return err
		}},
		"hides":        {keeps, hides("SELECT nothing")},
		"its variable": {apart, sends("SET @mine = 1")},
		"its lock":     {apart, sends("SELECT GET_LOCK('mine', 0)")},
		"a savepoint":  {apart, sends("SAVEPOINT mine")},
	} {
		k.Handler = mysql.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			if err := effectOf(ctx, tx, msg); err != nil || !batchtest.Bad(msg.UUID) {
				return err
			}
			return k.do(ctx, tx)
		})
		acts[name] = k.Act
	}
	byTurns(t, func(t *testing.T, p product) {
		batchtest.Dishonest(t, func(t *testing.T, change ...func(*middleware.InboxConfig)) *batchtest.Inbox {
			t.Helper()
			return newSharing(t, p, change...).Inbox
		}, acts)
	})
}

// Batches that meet on the same rows deadlock, and come to an end all the same: each message has
// its effects once.
func TestBatchesThatDeadlockComeToAnEnd(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		s := newSharing(t, p, batchtest.Redelivers)
		admin := s.counted.admin
		_, err := admin.ExecContext(t.Context(), "CREATE TABLE hot (id INT PRIMARY KEY, n INT NOT NULL)")
		require.NoError(t, err)
		_, err = admin.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO hot %s SELECT n, 0 FROM numbers WHERE n < %d", numbers(100_000), batchtest.HotRows))
		require.NoError(t, err)
		batchtest.Deadlocks(t, s.Inbox, batchtest.Meeting{
			Handler: func(row func() int) message.NoPublishHandlerFunc {
				return mysql.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
					for range 2 {
						if _, err := tx.ExecContext(ctx, "UPDATE hot SET n = n + 1 WHERE id = ?", row()); err != nil {
							return err
						}
					}
					return effectOf(ctx, tx, msg)
				})
			},
			Deadlock: func(err error) bool {
				e, ok := errors.AsType[*driver.MySQLError](err)
				return ok && e.Number == 1213
			},
			Sum: func() (n int, err error) {
				return n, admin.QueryRowContext(t.Context(), "SELECT sum(n) FROM hot").Scan(&n)
			},
		})
	})
}

// Requests of COMMIT and their replies are lost, and connections in the middle of batches, while
// handlers fail and each message comes twice. Each is delivered until it is acked.
func TestBatchesOnConnectionsThatAreLost(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		s := newSharing(t, p, batchtest.Redelivers)
		batchtest.LostConnections(t, s.Inbox, s.counted.proxy, mysql.Handler(effectOf))
	})
}

// Outputs of the members are committed with them, in their order, and none of those that fail.
func TestOutputsOfABatch(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		cost := c.cost(func() {
			ids := []string{fmt.Sprint("a", rand.Int()), fmt.Sprint("b", rand.Int()), fmt.Sprint("c", rand.Int())}
			b, members := beginBatch(t, c, ids...)
			for i, m := range members {
				require.NoError(t, m.Emit([]stores.Output{{ID: ids[i], Topic: "topic", OrderKey: []byte("key")}}))
				if i == 1 {
					require.NoError(t, m.Leave(t.Context()))
				} else {
					require.NoError(t, m.Keep(t.Context()))
				}
			}
			require.NoError(t, b.Commit(t.Context()))
		})
		trips := 2 + 1 // with that of the member that leaves
		if !p.maria() {
			trips += 1 + 2 // the lock of the order key, and both outputs
		}
		require.Equal(t, trips, cost.RoundTrips)
		var n int
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_outbox WHERE message_id NOT LIKE 'b%'").Scan(&n))
		require.Equal(t, 4*2, n)
	})
}
