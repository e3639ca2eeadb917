package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/batchtest"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// sharing is an inbox whose handler shares transactions, and its store.
type sharing struct {
	*batchtest.Inbox

	store *postgres.Store
}

func newSharing(t *testing.T, change ...func(*middleware.InboxConfig)) *sharing {
	t.Helper()
	return newSharingOn(t, openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "30")), change...)
}

func openSharing(t *testing.T, change ...func(*middleware.InboxConfig)) *batchtest.Inbox {
	t.Helper()
	return newSharing(t, change...).Inbox
}

func newSharingOn(t *testing.T, store *postgres.Store, change ...func(*middleware.InboxConfig)) *sharing {
	t.Helper()
	database := batchtest.Database{Store: store, Effects: func(context.Context) ([]string, error) { return committedKeys(t, store), nil }}
	return &sharing{batchtest.New(t, database, change...), store}
}

func effect(msg *message.Message, tx pgx.Tx) error {
	_, err := tx.Exec(msg.Context(), insertEffect, msg.UUID)
	return err
}

const many = 100

func TestMessagesInFlightShareTransactions(t *testing.T) {
	t.Parallel()
	s := newSharing(t)
	wait := batchtest.Crowded(8)
	for _, err := range s.Deliver(0, many, postgres.Handler(func(_ context.Context, tx pgx.Tx, msg *message.Message) error {
		wait()
		return effect(msg, tx)
	})) {
		require.NoError(t, err)
	}
	s.Once(t, many, batchtest.None)
	batches, sum := s.Ended()
	require.NoError(t, sum.Lost)
	require.Greater(t, sum.Kept, many/2)
	require.Less(t, batches, many/4)
	require.Equal(t, middleware.ResultCompleted, s.Result(17))
}

var handlers = batchtest.Handlers[pgx.Tx]{
	Handler: postgres.Handler,
	Effect:  func(_ context.Context, tx pgx.Tx, msg *message.Message) error { return effect(msg, tx) },
}

// Whatever a handler does to its transaction happens to its message alone.
func TestDishonestHandlersInBatches(t *testing.T) {
	t.Parallel()
	sends := func(text string, args ...any) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, text, args...); return err }
	}
	hides := func(act func(context.Context, pgx.Tx) error) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error { _ = act(ctx, tx); return nil }
	}
	acts := handlers.Acts(map[string]batchtest.Does[pgx.Tx]{
		"hides":       {Act: batchtest.Fails, Do: hides(sends("SELECT 1 / $1", 0))},
		"commits":     {Act: batchtest.Fails, Do: func(ctx context.Context, tx pgx.Tx) error { _ = tx.Commit(ctx); return nil }},
		"commits raw": {Act: batchtest.Act{Seen: batchtest.Apart.Seen, Ends: true}, Do: func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Conn().Exec(ctx, "COMMIT AND CHAIN"); return nil }},
		"leaves rows": {Act: batchtest.Loses, Do: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 9)") //nolint:sqlclosecheck // it is left open
			return err
		}},
		"bad SQL":     {Act: batchtest.Fails, Do: sends("SELECT nothing")},
		"its setting": {Act: batchtest.Apart, Do: sends("SET LOCAL lock_timeout = 1")},
		"hides that":  {Act: batchtest.Apart, Do: hides(sends("SET LOCAL lock_timeout = 1"))},
		"its lock":    {Act: batchtest.Apart, Do: sends("SELECT pg_advisory_xact_lock(1)")},
		"a savepoint": {Act: batchtest.Keeps, Do: func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return nil })
		}},
		"rolls it back": {Act: batchtest.Keeps, Do: func(ctx context.Context, tx pgx.Tx) error {
			if err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1 / $1", 0); return err }); err == nil {
				return errors.New("it has not failed")
			}
			return nil
		}},
	})
	batchtest.Dishonest(t, openSharing, acts)
}

// Slow handlers never add up: those that have not begun in time run alone.
func TestSlowHandlersDoNotAddUp(t *testing.T) {
	t.Parallel()
	s := newSharing(t, func(c *middleware.InboxConfig) {
		c.BatchByHandler[batchtest.Handler] = middleware.BatchConfig{Time: 100 * time.Millisecond, From: 4}
	})
	start := time.Now()
	const n = 60
	for _, err := range s.Deliver(0, n, postgres.Handler(func(_ context.Context, tx pgx.Tx, msg *message.Message) error {
		<-time.After(50 * time.Millisecond)
		return effect(msg, tx)
	})) {
		require.NoError(t, err)
	}
	s.Once(t, n, batchtest.None)
	_, sum := s.Ended()
	require.Positive(t, sum.Late)
	t.Logf("%s, %+v", time.Since(start), sum)
}

// A handler that does not return keeps the others for no longer than its own time.
func TestAHandlerThatHangsLosesItsBatch(t *testing.T) {
	t.Parallel()
	batchtest.Hangs(t, openSharing, func(hang func(string)) message.NoPublishHandlerFunc {
		return postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
			var id string
			if err := tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text").Scan(&id); err != nil {
				return err
			}
			hang(id)
			return effect(msg, tx)
		})
	})
}
