package tables

import (
	"context"
	"runtime"
	"sync"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// looks are those at one consumer's rows. Duplicates come in bursts, many at a time, and their looks
// share round trips. The zero value is ready to use.
type looks struct {
	mu      sync.Mutex
	forming *together // not yet sent
}

// together are looks that share a round trip.
type together struct {
	ids  [][]byte
	rows []sqlstore.Row // set when done is closed, unless it failed
	done chan struct{}
}

// maxTogether bounds what one round trip reads.
const maxTogether = 64

// lookUp reads a key's row in one round trip, which it shares with those who ask at the same time.
func (t *Tables) lookUp(ctx context.Context, consumer int64, id []byte) (sqlstore.Row, error) {
	of, _ := t.looks.LoadOrStore(consumer, new(looks))
	l := of.(*looks) //nolint:forcetypeassert // see above
	shared, at := l.join(id)
	if at == 0 {
		// Others that are ready to run may ask as well: those whose last round trip was shared are,
		// at the same time. So trips stay shared, without anybody waiting for another's.
		runtime.Gosched()
		l.begin(shared)
		t.lookTogether(ctx, consumer, shared)
	}
	return t.answered(ctx, consumer, shared, at)
}

// answered waits for the answer to one of several looks. What failed for all is asked again for each
// alone, so that an error is the message's own.
func (t *Tables) answered(ctx context.Context, consumer int64, shared *together, at int) (sqlstore.Row, error) {
	select {
	case <-shared.done:
	case <-ctx.Done():
		return sqlstore.Row{}, context.Cause(ctx)
	}
	if shared.rows == nil {
		return t.lookAlone(ctx, consumer, shared.ids[at])
	}
	return shared.rows[at], nil
}

// join adds an id to those that are about to be sent. The first one sends them.
func (l *looks) join(id []byte) (shared *together, at int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forming == nil {
		l.forming = &together{done: make(chan struct{})}
	}
	shared, at = l.forming, len(l.forming.ids)
	shared.ids = append(shared.ids, id)
	if len(shared.ids) == maxTogether {
		l.forming = nil
	}
	return shared, at
}

// begin lets nobody join any more.
func (l *looks) begin(shared *together) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forming == shared {
		l.forming = nil
	}
}

// lookTogether reads the rows of all, unless there is only one.
func (t *Tables) lookTogether(ctx context.Context, consumer int64, shared *together) {
	defer close(shared.done) // also if the driver panics
	n := len(shared.ids)
	if n == 1 {
		return
	}
	at, rows := make(map[string][]int, n), make([]sqlstore.Row, n)
	for i, id := range shared.ids {
		at[string(id)] = append(at[string(id)], i)
	}
	_, err := t.db.Send(ctx, Statement{Text: t.sql.lookTogether, Args: []any{consumer, shared.ids}, Read: func(rs Rows) error {
		for {
			var id []byte
			var row sqlstore.Row
			if err := row.Read(rs, &row.Server, &id); err != nil || !row.Found {
				return err
			}
			for _, i := range at[string(id)] {
				rows[i] = row
			}
		}
	}})
	if err == nil {
		shared.rows = rows
	}
}

// lookAlone reads a key's row in one round trip.
func (t *Tables) lookAlone(ctx context.Context, consumer int64, id []byte) (row sqlstore.Row, err error) {
	_, err = t.db.Send(ctx, Statement{Text: t.sql.look, Args: []any{consumer, id}, Read: func(rows Rows) error { return row.Read(rows, &row.Server) }})
	return row, err
}
