package tables

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Settle implements stores.Outbox. Kept outputs move to the history in one statement.
func (s Store) Settle(ctx context.Context, q stores.Settlement) error {
	if q.Keep && len(q.Published) > 0 && q.CreatedAt != nil {
		if err := s.t.shared.Ready(ctx); err != nil {
			return err
		}
		if _, err := (database{s.t}).Exec(ctx, s.t.shared.Outputs(keepPublishedText, q.Published, q.CreatedAt)); err != nil {
			return s.t.shared.Explain(ctx, err)
		}
		q.Published = nil
	}
	return s.Store.Settle(ctx, q)
}

const keepPublishedText = `WITH moved AS (DELETE FROM {schema.}{prefix}outbox WHERE %s RETURNING ` + sqlstore.OutputColumns + `, attempts, error)
INSERT INTO {schema.}{prefix}outbox_history (` + sqlstore.OutputColumns + `, attempts, error, published_at)
SELECT ` + sqlstore.OutputColumns + `, attempts, error, clock_timestamp() FROM moved`

// openWriters knows the transactions that may still commit outputs. A transaction locks the table
// before it draws a number, and until it ends. So once all transactions that held the lock after a
// snapshot have ended, no output can appear below the snapshot's newest one. (Transaction ids do
// not show this: a running one may have an id above the snapshot, or have drawn a number before it
// has an id.)
type openWriters struct {
	mu       sync.Mutex
	asked    time.Time
	complete int64 // all outputs up to this number are committed
	marks    []writersMark
}

type writersMark struct {
	newest  int64
	writers []string // transactions that held the lock
}

const (
	askWriters = 100 * time.Millisecond
	maxMarks   = 64
)

// Complete implements sqlstore.Database. It does not wait for transactions that only read.
func (d database) Complete(ctx context.Context) (int64, error) {
	w := &d.t.writers
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.asked) < askWriters {
		return w.complete, nil
	}
	var (
		found        bool
		running      string
		mark         writersMark
		complete     = w.complete
		stillRunning []writersMark
	)
	if _, err := d.Send(ctx, Statement{Text: d.t.sql.writers, Read: first(&found, &mark.newest, &running)}); err != nil {
		return 0, err
	}
	mark.writers = strings.Fields(running)
	for _, m := range append(w.marks, mark) {
		if slices.ContainsFunc(m.writers, func(w string) bool { return slices.Contains(mark.writers, w) }) {
			stillRunning = append(stillRunning, m)
		} else {
			complete = max(complete, m.newest)
		}
	}
	if len(stillRunning) > maxMarks { // keep the newest one, which says most
		stillRunning = slices.Delete(stillRunning, maxMarks-1, len(stillRunning)-1)
	}
	w.asked, w.complete, w.marks = time.Now(), complete, stillRunning
	return complete, nil
}

// SettleText is the statement that deletes published outputs.
func (t *Tables) SettleText() string {
	return t.shared.Outputs(sqlstore.DeleteOutputs, []int64{0}, []time.Time{{}}).Text
}
