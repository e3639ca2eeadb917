package batchtest

import (
	"context"
	"database/sql"
	"runtime"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
)

// Handlers makes handlers that get a store's transaction.
type Handlers[T any] struct {
	Handler func(f func(ctx context.Context, tx T, msg *message.Message) error) message.NoPublishHandlerFunc // of the store
	Effect  func(ctx context.Context, tx T, msg *message.Message) error                                      // writes a message's effect
}

// Does is what a handler does to its transaction, and what is expected of it.
type Does[T any] struct {
	Act

	Do func(ctx context.Context, tx T) error
}

// Acts returns acts, and those that need no transaction.
func (h Handlers[T]) Acts(does map[string]Does[T]) map[string]Act {
	acts := make(map[string]Act)
	add := func(name string, act Act, do func(ctx context.Context, tx T) error) {
		act.Handler = h.Handler(func(ctx context.Context, tx T, msg *message.Message) error {
			if err := h.Effect(ctx, tx, msg); err != nil || !Bad(msg.UUID) {
				return err
			}
			return do(ctx, tx)
		})
		acts[name] = act
	}
	add("fails", Fails, func(context.Context, T) error { return errRefused })
	add("panics", Fails, func(context.Context, T) error { panic("at the disco") })
	add("exits", Fails, func(context.Context, T) error { runtime.Goexit(); return nil })
	for name, d := range does {
		add(name, d.Act, d.Do)
	}
	return acts
}

// Meets returns the handler of a [Meeting], which adds 1 to two rows by update.
func (h Handlers[T]) Meets(update func(ctx context.Context, tx T, row int) error) func(row func() int) message.NoPublishHandlerFunc {
	return func(row func() int) message.NoPublishHandlerFunc {
		return h.Handler(func(ctx context.Context, tx T, msg *message.Message) error {
			for range 2 {
				if err := update(ctx, tx, row()); err != nil {
					return err
				}
			}
			return h.Effect(ctx, tx, msg)
		})
	}
}

// Sends sends a statement.
func Sends(text string, args ...any) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, text, args...); return err }
}

// Hides sends a statement, and hides its error.
func Hides(text string, args ...any) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error { _, _ = tx.ExecContext(ctx, text, args...); return nil }
}

// Labels returns what a query of one column reads; see Database.Effects.
func Labels(db *sql.DB, query string) func(ctx context.Context) ([]string, error) {
	return func(ctx context.Context) (labels []string, err error) {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var label string
			if err := rows.Scan(&label); err != nil {
				return nil, err
			}
			labels = append(labels, label)
		}
		return labels, rows.Err()
	}
}

// What is expected of acts in batches.
var (
	Fails  = Act{Seen: func(sum middleware.BatchEnd) bool { return sum.Failed > 0 && sum.Lost == nil }}
	Loses  = Act{Seen: func(sum middleware.BatchEnd) bool { return sum.Failed > 0 && sum.Lost != nil }}
	Doomed = Act{Seen: apart} // it fails in a transaction of its own, too
	Apart  = Act{Seen: apart, Runs: true}
	Keeps  = Act{Runs: true, Seen: func(sum middleware.BatchEnd) bool {
		return sum.Kept > 8 && sum.Failed+sum.Apart == 0 && sum.Lost == nil
	}}
)

func apart(sum middleware.BatchEnd) bool { return sum.Apart > 0 && sum.Lost == nil }
