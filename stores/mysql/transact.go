package mysql

import (
	"context"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// sender sends statements that have their values in them.
type sender interface {
	exec(ctx context.Context, text string) (affected int64, err error)
	row(ctx context.Context, text string, into ...any) (found bool, err error)
}

// textSender is a short transaction as a sender.
type textSender struct{ tx sqlstore.Sender }

func (s textSender) exec(ctx context.Context, text string) (int64, error) {
	return s.tx.Send(ctx, sqlstore.Statement{Text: text})
}

func (s textSender) row(ctx context.Context, text string, into ...any) (found bool, err error) {
	_, err = s.tx.Send(ctx, sqlstore.Statement{Text: text, Read: func(rows sqlstore.Rows) error {
		if found = rows.Next(); found {
			if err := rows.Scan(into...); err != nil {
				return err
			}
		}
		return rows.Err()
	}})
	return found, err
}

// advance makes the next message of an order key due, unless somebody has it in hand: one
// that is locked just now comes when its own time is up.
func advance(ctx context.Context, on sender, texts *statements, consumer int64, orderKey []byte, after int64) error {
	var number, found int64
	ok, err := on.row(ctx, fmt.Sprintf(texts.next, consumer, appendBytes(nil, orderKey), after), &number)
	if err != nil || !ok {
		return err
	}
	ok, err = on.row(ctx, fmt.Sprintf(texts.free, number), &found)
	if err != nil || !ok {
		return err
	}
	_, err = on.exec(ctx, fmt.Sprintf(texts.wake, number))
	return err
}
