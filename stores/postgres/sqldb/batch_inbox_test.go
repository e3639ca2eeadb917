package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/batchtest"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// newSharing returns an inbox whose handler shares transactions on connections of the connector.
func newSharing(t *testing.T, address string, change ...func(*middleware.InboxConfig)) (*batchtest.Inbox, *sql.DB) {
	t.Helper()
	store := newStore(t, connector, address)
	store.DB().SetMaxOpenConns(30)
	return batchtest.New(t, batchtest.Database{Store: store, Effects: func(ctx context.Context) (keys []string, err error) {
		rows, err := store.DB().QueryContext(ctx, "SELECT key FROM effect")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var key string
			if err := rows.Scan(&key); err != nil {
				return nil, err
			}
			keys = append(keys, key)
		}
		return keys, rows.Err()
	}}, change...), store.DB()
}

func openSharing(t *testing.T, change ...func(*middleware.InboxConfig)) *batchtest.Inbox {
	t.Helper()
	s, _ := newSharing(t, testenv.VolatilePostgres(t).NewDatabase(t), change...)
	return s
}

func effectOf(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect (key) VALUES ($1)", msg.UUID)
	return err
}

var errRefused = errors.New("refused")

// Whatever a handler does to its transaction happens to its message alone.
func TestDishonestHandlersInBatches(t *testing.T) {
	t.Parallel()
	sends := func(text string, args ...any) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, text, args...); return err }
	}
	hides := func(text string, args ...any) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error { _, _ = tx.ExecContext(ctx, text, args...); return nil }
	}
	type kind struct {
		batchtest.Act

		do func(ctx context.Context, tx *sql.Tx) error
	}
	var (
		fails = batchtest.Act{Seen: batchtest.Fails}
		loses = batchtest.Act{Seen: batchtest.Loses}
		apart = batchtest.Act{Seen: batchtest.Apart, Runs: true}
	)
	acts := make(map[string]batchtest.Act)
	for name, k := range map[string]kind{
		"fails":       {fails, func(context.Context, *sql.Tx) error { return errRefused }},
		"panics":      {fails, func(context.Context, *sql.Tx) error { panic("at the disco") }},
		"exits":       {fails, func(context.Context, *sql.Tx) error { runtime.Goexit(); return nil }},
		"hides":       {fails, hides("SELECT 1 / $1::int", 0)},
		"commits":     {fails, func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }},
		"commits SQL": {batchtest.Act{Seen: batchtest.Apart}, hides("COMMIT")},
		"leaves rows": {loses, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck,rowserrcheck // it is left open
			return err
		}},
		"bad SQL":     {fails, sends("SELECT nothing")},
		"its setting": {apart, sends("SET LOCAL lock_timeout = 1")},
		"hides that":  {apart, hides("SET LOCAL lock_timeout = 1")},
		"its lock":    {apart, sends("SELECT pg_advisory_xact_lock(1)")},
		"a savepoint": {apart, sends("SAVEPOINT mine")},
	} {
		k.Handler = sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			if err := effectOf(ctx, tx, msg); err != nil || !batchtest.Bad(msg.UUID) {
				return err
			}
			return k.do(ctx, tx)
		})
		acts[name] = k.Act
	}
	batchtest.Dishonest(t, openSharing, acts)
}

// Batches that meet on the same rows deadlock, and come to an end all the same.
func TestBatchesThatDeadlockComeToAnEnd(t *testing.T) {
	t.Parallel()
	address := pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "deadlock_timeout", "50ms")
	s, db := newSharing(t, address, batchtest.Redelivers)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE hot (id int PRIMARY KEY, n int NOT NULL)")
	if err == nil {
		_, err = db.ExecContext(t.Context(), "INSERT INTO hot SELECT id, 0 FROM generate_series(0, $1 - 1) AS id", batchtest.HotRows)
	}
	if err != nil {
		t.Fatal(err)
	}
	batchtest.Deadlocks(t, s, batchtest.Meeting{
		Handler: func(row func() int) message.NoPublishHandlerFunc {
			return sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
				for range 2 {
					if _, err := tx.ExecContext(ctx, "UPDATE hot SET n = n + 1 WHERE id = $1", row()); err != nil {
						return err
					}
				}
				return effectOf(ctx, tx, msg)
			})
		},
		Deadlock: func(err error) bool {
			pg, ok := errors.AsType[*pgconn.PgError](err)
			return ok && pg.Code == "40P01"
		},
		Sum: func() (n int, err error) {
			return n, db.QueryRowContext(t.Context(), "SELECT sum(n) FROM hot").Scan(&n)
		},
	})
}

// Requests of COMMIT and their replies are lost, and connections in the middle of batches.
func TestBatchesOnConnectionsThatAreLost(t *testing.T) {
	t.Parallel()
	proxy, err := pgproxy.Start(testenv.VolatilePostgres(t).NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	s, _ := newSharing(t, proxy.URL(), batchtest.Redelivers)
	batchtest.LostConnections(t, s, proxy, sqldb.Handler(effectOf))
}

// A handler that does not return keeps the others for no longer than its own time.
func TestAHandlerThatHangsLosesItsBatch(t *testing.T) {
	t.Parallel()
	batchtest.Hangs(t, openSharing, func(hang func(string)) message.NoPublishHandlerFunc {
		return sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			var id string
			if err := tx.QueryRowContext(ctx, "SELECT pg_current_xact_id()::text").Scan(&id); err != nil {
				return err
			}
			hang(id)
			return effectOf(ctx, tx, msg)
		})
	})
}
