package storetest

import (
	"context"
	"database/sql"
	"errors"

	"github.com/millpond-go/millpond/stores"
)

// defers writes a failure down later, from what the caller has by then.
type defers struct{ stores.Store }

func (s *defers) Record(ctx context.Context, f stores.Failure) (int64, error) {
	if f.Content != nil {
		clear(f.Content.Payload)
	}
	return s.Store.Record(ctx, f)
}

type looks struct {
	stores.Store
	look func(context.Context, stores.Store, stores.Key, stores.Fingerprint) (stores.Verdict, error)
}

func (s looks) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	return s.look(ctx, s.Store, k, f)
}

func onLook(f func(context.Context, stores.Store, stores.Key, stores.Fingerprint) (stores.Verdict, error)) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store { return looks{s, f} }
}

type records struct {
	stores.Store
	record func(context.Context, stores.Store, stores.Failure) (int64, error)
}

func (s records) Record(ctx context.Context, f stores.Failure) (int64, error) {
	return s.record(ctx, s.Store, f)
}

func onRecord(f func(context.Context, stores.Store, stores.Failure) (int64, error)) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store { return records{s, f} }
}

type dues struct {
	stores.Store
	due func(context.Context, stores.Store, stores.DueQuery) ([]stores.Retry, error)
}

func (s dues) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	return s.due(ctx, s.Store, q)
}

func onDue(f func(context.Context, stores.Store, stores.DueQuery) ([]stores.Retry, error)) func(stores.Store, *sql.DB) stores.Store {
	return func(s stores.Store, _ *sql.DB) stores.Store { return dues{s, f} }
}

type keepsReserved struct{ stores.Store }

func (keepsReserved) Release(context.Context, []stores.Retry) error { return nil }

// likes finds texts with LIKE.
type likes struct {
	stores.Store
	admin *sql.DB
}

func (s likes) Messages(ctx context.Context, q stores.MessageQuery) ([]stores.Message, error) {
	if q.ErrorContains != "" {
		q.Numbers = []int64{-1}
		err := queryAll(ctx, s.admin, "SELECT number FROM millpond_failure WHERE error LIKE '%"+q.ErrorContains+"%'", func(rows *sql.Rows) error {
			var number int64
			err := rows.Scan(&number)
			q.Numbers = append(q.Numbers, number)
			return err
		})
		if err != nil {
			return nil, err
		}
		q.ErrorContains = ""
	}
	return s.Store.Messages(ctx, q)
}

// repeats begins each page with the last row of the page before.
type repeats struct{ stores.Store }

func (s repeats) Messages(ctx context.Context, q stores.MessageQuery) ([]stores.Message, error) {
	if q.Before != 0 {
		q.Before++
	}
	return s.Store.Messages(ctx, q)
}

func (s repeats) Quarantined(ctx context.Context, q stores.QuarantineQuery) ([]stores.QuarantineRow, error) {
	if q.Before != 0 {
		q.Before++
	}
	return s.Store.Quarantined(ctx, q)
}

type changes struct {
	stores.Store
	admin         *sql.DB
	before, after func(ctx context.Context, admin *sql.DB) error
}

func (s changes) Change(ctx context.Context, c stores.Change) (stores.Changed, error) {
	if s.before != nil {
		if err := s.before(ctx, s.admin); err != nil {
			return stores.Changed{}, err
		}
	}
	changed, err := s.Store.Change(ctx, c)
	if s.after != nil {
		err = errors.Join(err, s.after(ctx, s.admin))
	}
	return changed, err
}

// onChange sends a statement before, and another one after each Change.
func onChange(before, after string) func(stores.Store, *sql.DB) stores.Store {
	exec := func(text string) func(context.Context, *sql.DB) error {
		if text == "" {
			return nil
		}
		return func(ctx context.Context, admin *sql.DB) error {
			_, err := admin.ExecContext(ctx, text)
			return err
		}
	}
	return func(s stores.Store, admin *sql.DB) stores.Store {
		return changes{Store: s, admin: admin, before: exec(before), after: exec(after)}
	}
}

// releases gives released messages the id that they came with.
type releases struct {
	stores.Store
	admin *sql.DB
}

func (s releases) Decide(ctx context.Context, d stores.Decision) error {
	if err := s.Store.Decide(ctx, d); err != nil {
		return err
	}
	var errs []error
	for _, table := range []string{"millpond_inbox", "millpond_failure"} {
		_, err := s.admin.ExecContext(ctx, "UPDATE OR REPLACE "+table+` SET message_id = (SELECT coalesce(message_id, 'none') FROM millpond_quarantine WHERE id = ?)
WHERE message_id = ?`, d.RowID, stores.ReleasedID(d.RowID))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// decidesAgain finds nothing wrong with a second decision.
type decidesAgain struct{ stores.Store }

func (s decidesAgain) Decide(ctx context.Context, d stores.Decision) error {
	if err := s.Store.Decide(ctx, d); !errors.Is(err, stores.ErrChanged) {
		return err
	}
	return nil
}
