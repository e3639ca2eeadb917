package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
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
	database := batchtest.Database{Store: store, Effects: batchtest.Labels(store.DB(), "SELECT key FROM effect")}
	return batchtest.New(t, database, change...), store.DB()
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

var handlers = batchtest.Handlers[*sql.Tx]{Handler: sqldb.Handler, Effect: effectOf}

// Whatever a handler does to its transaction happens to its message alone.
func TestDishonestHandlersInBatches(t *testing.T) {
	t.Parallel()
	batchtest.Dishonest(t, openSharing, handlers.Acts(map[string]batchtest.Does[*sql.Tx]{
		"hides":       {Act: batchtest.Fails, Do: batchtest.Hides("SELECT 1 / $1::int", 0)},
		"commits":     {Act: batchtest.Fails, Do: func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }},
		"commits SQL": {Act: batchtest.Doomed, Do: batchtest.Hides("COMMIT")},
		"leaves rows": {Act: batchtest.Loses, Do: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, "SELECT generate_series(1, 100000)") //nolint:sqlclosecheck,rowserrcheck // it is left open
			return err
		}},
		"bad SQL":     {Act: batchtest.Fails, Do: batchtest.Sends("SELECT nothing")},
		"its setting": {Act: batchtest.Apart, Do: batchtest.Sends("SET LOCAL lock_timeout = 1")},
		"hides that":  {Act: batchtest.Apart, Do: batchtest.Hides("SET LOCAL lock_timeout = 1")},
		"its lock":    {Act: batchtest.Apart, Do: batchtest.Sends("SELECT pg_advisory_xact_lock(1)")},
		"a savepoint": {Act: batchtest.Apart, Do: batchtest.Sends("SAVEPOINT mine")},
	}))
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
		Handler: handlers.Meets(func(ctx context.Context, tx *sql.Tx, row int) error {
			_, err := tx.ExecContext(ctx, "UPDATE hot SET n = n + 1 WHERE id = $1", row)
			return err
		}),
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
