package mysql

import (
	"context"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// advance is sqlstore.Advance: it makes an order key's next message due, unless it is reserved. A
// row that is locked right now comes when its own time is up.
func (s *Store) advance(ctx context.Context, on sqlstore.Sender, consumer int64, orderKey []byte, after int64) error {
	var number, found int64
	ok, err := first(ctx, on, fmt.Sprintf(s.sql.next, consumer, appendBytes(nil, orderKey), after), &number)
	if err != nil || !ok {
		return err
	}
	ok, err = firstFree(ctx, on, fmt.Sprintf(s.sql.free, number), &found)
	if err != nil || !ok {
		return err
	}
	_, err = exec(ctx, on, fmt.Sprintf(s.sql.wake, number))
	return err
}

// exec sends a statement with its values in the text.
func exec(ctx context.Context, on sqlstore.Sender, text string) (affected int64, err error) {
	return on.Send(ctx, sqlstore.Statement{Text: text})
}

// first reads at most one row.
func first(ctx context.Context, on sqlstore.Sender, text string, into ...any) (found bool, err error) {
	return sqlstore.First(ctx, on, sqlstore.Statement{Text: text}, into...)
}

// firstFree is first for a statement that locks the row. It reports whether another transaction has
// locked it.
func firstFree(ctx context.Context, on sqlstore.Sender, text string, into ...any) (locked bool, err error) {
	locked, err = first(ctx, on, text, into...)
	if isRefused(err) {
		return false, nil
	}
	return locked, err
}
