package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

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
	database := batchtest.Database{Store: store, Effects: batchtest.Labels(s.counted.admin, "SELECT label FROM effect")}
	s.Inbox = batchtest.New(t, database, append([]func(*middleware.InboxConfig){batchtest.SharesEarly}, change...)...)
	return s
}

func effectOf(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (?)", msg.UUID)
	return err
}

var handlers = batchtest.Handlers[*sql.Tx]{Handler: mysql.Handler, Effect: effectOf}

// Whatever a handler does to its transaction happens to its message alone.
func TestDishonestHandlersInBatches(t *testing.T) {
	t.Parallel()
	acts := handlers.Acts(map[string]batchtest.Does[*sql.Tx]{
		"bad SQL":     {Act: batchtest.Fails, Do: batchtest.Sends("SELECT nothing")},
		"commits":     {Act: batchtest.Fails, Do: func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }},
		"commits SQL": {Act: batchtest.Doomed, Do: batchtest.Hides("COMMIT")},
		"DDL":         {Act: batchtest.Doomed, Do: batchtest.Sends("CREATE TABLE IF NOT EXISTS ddl (n INT)")},
		"leaves rows": {Act: batchtest.Loses, Do: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, numbers(50_000)+" SELECT n FROM numbers") //nolint:sqlclosecheck,rowserrcheck // it is left open
			return err
		}},
		"hides":        {Act: batchtest.Keeps, Do: batchtest.Hides("SELECT nothing")},
		"its variable": {Act: batchtest.Apart, Do: batchtest.Sends("SET @mine = 1")},
		"its lock":     {Act: batchtest.Apart, Do: batchtest.Sends("SELECT GET_LOCK('mine', 0)")},
		"a savepoint":  {Act: batchtest.Apart, Do: batchtest.Sends("SAVEPOINT mine")},
	})
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
			Handler: handlers.Meets(func(ctx context.Context, tx *sql.Tx, row int) error {
				_, err := tx.ExecContext(ctx, "UPDATE hot SET n = n + 1 WHERE id = ?", row)
				return err
			}),
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
