package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores"
)

// Resolve implements stores.Resolver.
func (s *Store) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	if s.closed.Load() {
		return false, stores.ErrClosed
	}
	consumer, err := s.consumerID(k.Consumer)
	if err != nil {
		return false, err
	}
	row, err := s.settledRow(ctx, consumer, k.ID)
	return row.found && row.Status == stores.StatusCompleted, err
}

// settledRow waits for the key's lock, which a transaction that claims the key holds
// until its outcome is visible, and reads the row.
func (s *Store) settledRow(ctx context.Context, consumer int32, id []byte) (inboxRow, error) {
	// The server must give up before we do, or it would go on waiting unwatched.
	wait := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(time.Until(deadline)*9/10, time.Millisecond)
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return inboxRow{}, err
	}
	defer conn.Release()
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	batch.Queue("SELECT set_config('lock_timeout', $1, true)", fmt.Sprintf("%dms", wait.Milliseconds()))
	batch.Queue("SELECT pg_advisory_xact_lock($1)", s.lockKey(consumer, id))
	batch.Queue(s.sql.look, consumer, id)
	batch.Queue("rollback")
	results := conn.SendBatch(ctx, &batch)
	for range 3 {
		if _, err = results.Exec(); err != nil {
			break
		}
	}
	var row inboxRow
	if err == nil {
		row, err = scanRow(results.QueryRow())
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return inboxRow{}, unavailable(err)
	}
	return row, nil
}
