package tables

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Resolve implements stores.Resolver.
func (s Store) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	consumer, err := s.t.shared.Consumer(k.Consumer)
	if err != nil {
		return false, err
	}
	row, err := s.t.SettledRow(ctx, consumer, k.ID)
	return row.Found && row.Status == stores.StatusCompleted, err
}

// SettledRow reads a key's row after waiting for its lock, which a claiming transaction holds until
// its outcome is visible. A visible row may not be on a synchronous standby yet: if a COMMIT is
// canceled, the server gives up that wait. So SettledRow commits something itself, which also waits
// for the standby, and fails if ctx ends first.
func (t *Tables) SettledRow(ctx context.Context, consumer int64, id []byte) (row sqlstore.Row, err error) {
	// The server must give up before this call does, or it would wait on unwatched.
	wait := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		wait = max(time.Until(deadline)*9/10, time.Millisecond)
	}
	err = t.db.Batch(ctx,
		Statement{Text: setLockTimeout, Args: []any{fmt.Sprintf("%dms", wait.Milliseconds())}},
		Statement{Text: waitForLock, Args: []any{t.LockKey(consumer, id)}},
		Statement{Text: t.sql.resolve, Args: []any{consumer, id}, Read: func(rows Rows) error { return row.Read(rows, &row.Server) }},
	)
	if err != nil {
		return sqlstore.Row{}, Unavailable(err)
	}
	return row, nil
}

var (
	setLockTimeout = qualify("SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', '0', true)")
	waitForLock    = qualify("SELECT pg_advisory_xact_lock($1)::text")
)
