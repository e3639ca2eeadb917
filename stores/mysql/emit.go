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

// maxRiding bounds the staged bytes sent in one text with the completion. Large values are not put
// into a text.
const maxRiding = 256 << 10

// emit returns the staged statements for the text of the completion. It sends now those that are
// too large, or that MySQL cannot take in the same text.
func (ss *session) emit(ctx context.Context, staged sqlstore.Staged, exec func(context.Context, string) (int64, error)) (riding []byte, err error) {
	if len(staged) == 0 {
		return nil, nil
	}
	size := 0
	for _, s := range staged {
		size += sizeOf(s)
	}
	rides := ss.store.texts().maria && size <= maxRiding
	// The handler may have ended the transaction, and so made statements commit one by one. On the
	// store's own connection it may also have made the server convert bound values.
	const (
		noneAlone = "SET SESSION autocommit = 0"
		asBound   = ", SESSION character_set_client = utf8mb4, SESSION character_set_connection = utf8mb4"
	)
	switch unwatched := ss.own == nil || ss.own.suspect.Load(); {
	case unwatched && rides:
		riding = []byte(noneAlone + "; ")
	case unwatched && ss.own != nil:
		_, err = exec(ctx, noneAlone+asBound)
	case unwatched:
		_, err = exec(ctx, noneAlone)
	}
	if err != nil {
		return nil, err
	}
	for _, s := range staged {
		switch {
		case rides:
			riding = append(literal(riding, s), "; "...)
		case sizeOf(s) <= maxRiding || ss.own == nil:
			_, err = exec(ctx, string(literal(nil, s)))
		default:
			err = ss.own.sendLarge(ctx, asBytes(s))
		}
		if err != nil {
			return nil, err
		}
	}
	return riding, nil
}

// emitComplete returns the completion together with the only staged output, for one round trip on
// MySQL. It returns nil if there are other outputs, or the server lacks the procedure.
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

// locks reports whether the commit waits for locks of order keys.
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

// literal appends a statement with its values in the text. Every question mark in its text must
// stand for a value.
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

// sendLarge sends a statement of the store after close, with separate values.
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
