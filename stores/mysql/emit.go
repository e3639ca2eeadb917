package mysql

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Emit implements stores.Emitter.
func (a *attempt) Emit(outputs []stores.Output) error {
	if err := a.outcome.Open(pkg); err != nil {
		return err
	}
	return a.store.tables.Stage(&a.staged, outputs)
}

// maxRiding is how much of what was staged goes into one text with the completion. Of large
// values no text is made.
const maxRiding = 256 << 10

// emit returns what goes into one text with the completion, in front of it. What is too much
// for that, or cannot ride on MySQL, is sent now.
func (a *attempt) emit(ctx context.Context, exec func(context.Context, string) (int64, error)) (riding []byte, err error) {
	if len(a.staged) == 0 {
		return nil, nil
	}
	size := 0
	for _, s := range a.staged {
		size += sizeOf(s)
	}
	rides := a.store.texts().maria && size <= maxRiding
	// A handler may have ended the transaction, and let statements commit by themselves.
	const noneAlone = "SET SESSION autocommit = 0"
	switch unwatched := a.ss.own == nil || a.ss.own.suspect.Load(); {
	case unwatched && rides:
		riding = []byte(noneAlone + "; ")
	case unwatched:
		if _, err := exec(ctx, noneAlone); err != nil {
			return nil, err
		}
	}
	for _, s := range a.staged {
		switch {
		case rides:
			riding = append(literal(riding, s), "; "...)
		case sizeOf(s) <= maxRiding || a.ss.own == nil:
			_, err = exec(ctx, string(literal(nil, s)))
		default:
			err = a.ss.own.sendLarge(ctx, asBytes(s))
		}
		if err != nil {
			return nil, err
		}
	}
	return riding, nil
}

// emitComplete is what completes on MySQL with the only output that was staged, in one trip; nil if
// there are more, or the server cannot.
func (a *attempt) emitComplete() []byte {
	n := len(a.staged)
	if !a.store.texts().emits || n == 0 || n > 2 {
		return nil
	}
	output, lock := a.staged[n-1], any("NULL")
	if n == 2 {
		if a.staged[0].Read == nil {
			return nil
		}
		lock = a.staged[0].Args[0]
	}
	size := sizeOf(output)
	if len(output.Args) != sqlstore.OutputValues || size > maxRiding {
		return nil
	}
	return a.store.texts().emitComplete(make([]byte, 0, 512+2*size), &a.claim, a.ss.own == nil, lock, output)
}

// locks reports whether locks of order keys were waited for.
func (a *attempt) locks() bool {
	return slices.ContainsFunc(a.staged, func(s sqlstore.Statement) bool { return s.Read != nil })
}

func sizeOf(s sqlstore.Statement) int {
	size := 0
	for _, arg := range s.Args {
		switch v := arg.(type) {
		case []byte:
			size += len(v)
		case string:
			size += len(v)
		}
	}
	return size
}

// literal appends a statement with its values in it. Its own text has no question mark but
// those of values.
func literal(b []byte, s sqlstore.Statement) []byte {
	for i, text := range strings.Split(s.Text, "?") {
		b = append(b, text...)
		if i == len(s.Args) {
			break
		}
		value := s.Args[i]
		if text, ok := value.(string); ok {
			value = []byte(text)
		}
		b = put(b, value)
	}
	return b
}

// sendLarge sends a statement of the store's after close, without making a text of it.
func (t *transaction) sendLarge(ctx context.Context, s sqlstore.Statement) error {
	t.conn.sending.Lock()
	defer t.conn.sending.Unlock()
	var once prepared
	values := make([]driver.Value, len(s.Args))
	for i, arg := range s.Args {
		values[i] = arg
	}
	_, err := once.exec(ctx, t.conn.native, s.Text, values...)
	if once.stmt != nil {
		_ = once.stmt.Close()
	}
	return t.conn.lost(err)
}
