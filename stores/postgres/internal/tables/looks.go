package tables

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// looks are those at one consumer's rows. Duplicates come in bursts, many at a time, and their looks
// share round trips. The zero value is ready to use.
type looks struct {
	mu      sync.Mutex
	forming *sharedLook // not yet sent
}

// sharedLook is one round trip for several looks.
type sharedLook struct {
	ids   [][]byte
	found []found // by the index of the id; set when done is closed, unless err is
	err   error
	done  chan struct{}
}

// found is what a look has read: no row, or a row that may be of no use.
type found struct {
	row sqlstore.Row
	err error
}

// maxShared bounds what one round trip reads.
const maxShared = 64

var errPanicked = errors.New("postgres: a function of the program has panicked")

// lookUp reads a key's row in one round trip, which it shares with those who ask at the same time.
// What fails for several is asked again for each alone, so that an error is the message's own.
func (t *Tables) lookUp(ctx context.Context, consumer int64, id []byte) (sqlstore.Row, error) {
	l := t.looksOf(consumer)
	shared, index := l.join(id)
	if index > 0 {
		shared.wait(ctx)
	} else {
		// Others that are ready to run may ask as well: those whose last round trip was shared are,
		// at the same time. So trips stay shared, without anybody waiting for another's.
		runtime.Gosched()
		l.begin(shared)
		if len(shared.ids) == 1 {
			return t.lookAlone(ctx, consumer, id)
		}
		t.send(ctx, consumer, shared)
		if shared.err != nil && ctx.Err() != nil {
			return sqlstore.Row{}, shared.err
		}
	}
	select {
	case <-shared.done:
		if shared.err == nil {
			return shared.found[index].row, shared.found[index].err
		}
	default:
	}
	return t.lookAlone(ctx, consumer, id) // if ctx has ended, the driver says what was missing
}

// wait waits for half of the time that ctx leaves: the connection of the one who sends may be the
// only one that does not answer.
func (s *sharedLook) wait(ctx context.Context) {
	var late <-chan time.Time
	if end, limited := ctx.Deadline(); limited {
		timer := time.NewTimer(time.Until(end) / 2)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-s.done:
	case <-late:
	case <-ctx.Done():
	}
}

func (t *Tables) looksOf(consumer int64) *looks {
	l, known := t.looks.Load(consumer)
	if !known {
		l, _ = t.looks.LoadOrStore(consumer, new(looks))
	}
	return l.(*looks) //nolint:forcetypeassert // see above
}

// join adds an id to those that are about to be sent. The first one sends them.
func (l *looks) join(id []byte) (shared *sharedLook, index int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forming == nil {
		l.forming = &sharedLook{done: make(chan struct{})}
	}
	shared, index = l.forming, len(l.forming.ids)
	if index > 0 {
		id = bytes.Clone(id) // its caller may give up before it is sent
	}
	shared.ids = append(shared.ids, id)
	if len(shared.ids) == maxShared {
		l.forming = nil
	}
	return shared, index
}

// begin lets nobody join any more.
func (l *looks) begin(shared *sharedLook) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forming == shared {
		l.forming = nil
	}
}

// send reads the rows of all ids in one round trip.
func (t *Tables) send(ctx context.Context, consumer int64, shared *sharedLook) {
	shared.err = errPanicked
	defer close(shared.done) // also if the driver panics
	indexes, all := make(map[string][]int, len(shared.ids)), make([]found, len(shared.ids))
	for i, id := range shared.ids {
		indexes[string(id)] = append(indexes[string(id)], i)
	}
	_, shared.err = t.db.Send(ctx, Statement{Text: t.sql.lookShared, Args: []any{consumer, shared.ids}, Read: func(rows Rows) error {
		for {
			var id []byte
			var one found
			one.err = one.row.Read(rows, &one.row.Server, &id)
			if !one.row.Found {
				return one.err
			}
			for _, i := range indexes[string(id)] {
				all[i] = one
			}
		}
	}})
	shared.found = all
}

// lookAlone reads a key's row in one round trip.
func (t *Tables) lookAlone(ctx context.Context, consumer int64, id []byte) (row sqlstore.Row, err error) {
	_, err = t.db.Send(ctx, Statement{Text: t.sql.look, Args: []any{consumer, id}, Read: func(rows Rows) error { return row.Read(rows, &row.Server) }})
	return row, err
}
