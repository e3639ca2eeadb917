package tables

import (
	"context"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Settle implements stores.Outbox: what is kept moves in one statement.
func (s Store) Settle(ctx context.Context, q stores.Settlement) error {
	if q.Keep && len(q.Published) > 0 {
		if err := s.t.shared.Ready(ctx); err != nil {
			return err
		}
		if _, err := (database{s.t}).Exec(ctx, Statement{Text: s.t.sql.keepPublished, Args: []any{q.Published}}); err != nil {
			return s.t.shared.Explain(ctx, err)
		}
		q.Published = nil
	}
	return s.Store.Settle(ctx, q)
}

const keepPublishedText = `WITH moved AS (DELETE FROM {schema.}{prefix}outbox WHERE id = ANY ($1::bigint[])
	RETURNING ` + sqlstore.OutputColumns + `, attempts, error)
INSERT INTO {schema.}{prefix}outbox_history (` + sqlstore.OutputColumns + `, attempts, error, published_at)
SELECT ` + sqlstore.OutputColumns + `, attempts, error, clock_timestamp() FROM moved`

// openWriters is what is known of transactions that may still commit outputs. A number is
// drawn by a transaction that has its own number by then, or is about to get it. So what was
// below the newest output when a snapshot was taken can no longer appear once all transactions
// have ended that ran in it.
type openWriters struct {
	mu       sync.Mutex
	asked    time.Time
	complete int64 // the number of an output
	marks    []writersMark
}

type writersMark struct{ newest, next int64 } // next is the number of the next transaction

const (
	askWriters = 100 * time.Millisecond
	maxMarks   = 64
)

const writersText = `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
	(SELECT coalesce(max(id), 0) FROM {schema.}{prefix}outbox)`

// Complete implements sqlstore.Database. Transactions that only read are none that anything
// waits for.
func (d database) Complete(ctx context.Context) (int64, error) {
	w := &d.t.writers
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.asked) < askWriters {
		return w.complete, nil
	}
	var (
		found        bool
		oldest       int64
		mark         writersMark
		complete     = w.complete
		stillRunning []writersMark
	)
	if _, err := d.Send(ctx, Statement{Text: d.t.sql.writers, Read: first(&found, &oldest, &mark.next, &mark.newest)}); err != nil {
		return 0, err
	}
	for _, m := range w.marks {
		if m.next <= oldest {
			complete = max(complete, m.newest)
		} else {
			stillRunning = append(stillRunning, m)
		}
	}
	if len(stillRunning) == maxMarks {
		stillRunning = stillRunning[:maxMarks-1]
	}
	stillRunning = append(stillRunning, mark)
	w.asked, w.complete, w.marks = time.Now(), complete, stillRunning
	return complete, nil
}
