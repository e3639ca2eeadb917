package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Change implements stores.Inspector. It takes the writer only if there is something to
// change. A delivery that has a message in hand in another process holds the writer, so
// then the error wraps stores.ErrUnavailable.
func (s *Store) Change(ctx context.Context, c stores.Change) (changed stores.Changed, err error) {
	err = s.inspect(ctx, string(c.Verb), func() error {
		if c.Limit <= 0 {
			return errLimit
		}
		if c.Verb != stores.VerbRetry && c.Verb != stores.VerbDiscard {
			return fmt.Errorf("%q is no verb for failed messages: use %s or %s", c.Verb, stores.VerbRetry, stores.VerbDiscard)
		}
		named, err := s.consumersNamed(ctx, c.Filter.Service, c.Filter.Handler)
		if err != nil {
			return err
		}
		w := changeable(c, named)
		b, err := s.batch(ctx, s.reader, w, c.Limit)
		if err == nil && len(b.numbers) > 0 {
			err = s.writer.write(ctx, s.writer.patience(), func(tx *sql.Tx) error {
				if b, err = s.batch(ctx, tx, w, c.Limit); err != nil || len(b.numbers) == 0 {
					return err
				}
				return s.change(ctx, tx, c, b)
			})
		}
		if err != nil {
			return err
		}
		changed = stores.Changed{
			Changed: len(b.numbers), Busy: b.busy, Next: max(c.After, b.last), Done: b.rows < c.Limit,
		}
		if c.Verb == stores.VerbRetry {
			changed.Redelivered = b.notKept
		}
		return nil
	})
	return changed, err
}

// changeable is the condition of the rows that a change concerns. Rows that an operator
// has retried and that nothing has happened to since are as they should be.
func changeable(c stores.Change, named sqlstore.Consumers) *sqlstore.Condition {
	w := matching(c.Filter, named)
	w.And("f.number > ?", c.After)
	if c.UpTo > 0 {
		w.And("f.number <= ?", c.UpTo)
	}
	if c.Verb == stores.VerbDiscard {
		w.And("f.status <> 5")
	} else {
		w.And(`NOT (f.status = 3 AND f.redrives > 0 AND f.attempts = 0 AND f.uncounted = 0 AND f.due_at <= {now}
			AND NOT f.presumed AND NOT f.reserved)`)
	}
	return w
}

// batch is what one transaction changes.
type batch struct {
	rows    int
	last    int64 // number
	numbers []int64
	busy    int
	notKept int
	orders  []order // of pending messages
}

type order struct {
	consumer int64
	key      string
}

// batch reads the next rows, and puts those aside that somebody has in hand.
func (s *Store) batch(ctx context.Context, q sqlstore.Querier, w *sqlstore.Condition, limit int) (batch, error) {
	var b batch
	query := s.text(`SELECT f.number, f.consumer, f.message_id, f.content, f.status = 3 AND f.reserved AND f.due_at > {now},
			CASE f.status WHEN 3 THEN f.order_key END
		FROM {schema.}{prefix}failure f WHERE ` + w.String() + ` ORDER BY f.number LIMIT ?`)
	seen := make(map[order]bool)
	err := sqlstore.Each(ctx, q, query, append(slices.Clip(w.Args), limit), func(scan sqlstore.Scan) error {
		var (
			number   int64
			consumer int64
			id, key  []byte
			content  stores.ContentState
			reserved bool
		)
		if err := scan(&number, &consumer, &id, &content, &reserved, &key); err != nil {
			return err
		}
		b.rows++
		b.last = number
		if flying, _ := s.flights.state(flight{consumer, string(id)}); flying || reserved {
			b.busy++
			return nil
		}
		b.numbers = append(b.numbers, number)
		if content != stores.ContentKept {
			b.notKept++
		}
		if o := (order{consumer, string(key)}); len(key) > 0 && !seen[o] {
			seen[o] = true
			b.orders = append(b.orders, o)
		}
		return nil
	})
	return b, err
}

// statusWord is a status of f as stores.Status has it.
const statusWord = `CASE f.status WHEN 3 THEN 'pending' WHEN 4 THEN 'failed' WHEN 5 THEN 'discarded' ELSE 'unknown' END`

// setStatusOf changes the rows of the inbox that belong to failures.
const setStatusOf = `UPDATE {schema.}{prefix}inbox SET status = ? WHERE (consumer, message_id) IN (
	SELECT consumer, message_id FROM {schema.}{prefix}failure WHERE ` + isNumber + `)`

// change changes both tables and writes the audit.
func (s *Store) change(ctx context.Context, tx *sql.Tx, c stores.Change, b batch) error {
	status := stores.StatusPending
	set := `{changed}, status = 3, attempts = 0, uncounted = 0, presumed = 0, suspect = suspect OR reserved, reserved = 0, redrives = redrives + 1,
		budget_at = {now}, due_at = {now}, placement = CASE content WHEN 1 THEN 1 ELSE 2 END,
		order_key = CASE content WHEN 1 THEN order_key END` // nothing waits for one that may never come again
	if c.Verb == stores.VerbDiscard {
		status = stores.StatusDiscarded
		set = `{changed}, status = 5, due_at = NULL, suspect = suspect OR reserved, reserved = 0`
	}
	all := func(query string, args ...any) error {
		result, err := tx.ExecContext(ctx, s.text(query), args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n != int64(len(b.numbers)) {
			err = fmt.Errorf("%d rows were changed instead of %d", n, len(b.numbers))
		}
		return err
	}
	which := array(b.numbers)
	if err := all(`INSERT INTO {schema.}{prefix}audit (verb, actor, reason, consumer, number, message_id, before, after)
		SELECT ?, ?, ?, f.consumer, f.number, f.message_id, `+statusWord+`, ?
		FROM {schema.}{prefix}failure f WHERE f.`+isNumber+` ORDER BY f.number`,
		string(c.Verb), sqlstore.Text(c.Actor, stores.MaxDetailBytes), sqlstore.Text(c.Reason, stores.MaxDetailBytes), status.String(), which); err != nil {
		return err
	}
	if err := all(`UPDATE {schema.}{prefix}failure SET `+set+` WHERE `+isNumber, which); err != nil {
		return err
	}
	if err := all(setStatusOf, status, which); err != nil {
		return err
	}
	if c.Verb == stores.VerbRetry {
		return nil
	}
	for _, o := range b.orders {
		if _, err := tx.ExecContext(ctx, s.sql.failures.advance, o.consumer, []byte(o.key)); err != nil {
			return err
		}
	}
	return nil
}
