package mysql

import (
	"context"
	"database/sql"
	"slices"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// maxChange is how many rows one batch of Change looks at, and so locks.
const maxChange = 1000

// Change implements stores.Inspector: what it has not got the locks of at once it leaves
// alone, so it never waits for a delivery.
func (s *Store) Change(ctx context.Context, c stores.Change) (changed stores.Changed, err error) {
	if c.Verb != stores.VerbRetry && c.Verb != stores.VerbDiscard {
		return changed, errVerb(c.Verb, "failed messages", stores.VerbRetry, stores.VerbDiscard)
	}
	err = s.inspect(ctx, c.Limit, func() error {
		named, err := s.consumersNamed(ctx, c.Filter.Service, c.Filter.Handler)
		if err != nil {
			return err
		}
		w := changeable(c, named)
		return s.transact(ctx, func(tx *sql.Tx) error {
			changed, err = s.change(ctx, tx, c, w)
			return err
		})
	})
	if err != nil {
		return stores.Changed{}, err
	}
	return changed, nil
}

// changeable is the condition of the rows that a change concerns. Rows that an operator
// has retried and that nothing has happened to since are as they should be.
func changeable(c stores.Change, named sqlstore.Consumers) *sqlstore.Condition {
	w := matching(c.Filter, named)
	if c.Verb == stores.VerbDiscard {
		w.And("f.status <> 5")
	} else {
		w.And(`NOT (f.status = 3 AND f.redrives > 0 AND f.attempts = 0 AND f.uncounted = 0 AND f.due_at <= ` + now + `
			AND f.presumed = 0 AND f.reserved = 0)`)
	}
	return w
}

// batch is what one transaction changes.
type batch struct {
	numbers []int64
	notKept int
	orders  []order // of pending messages
}

type order struct {
	consumer, number int64 // of the first of them that goes
	key              string
}

// change changes the next rows in both tables and writes the audit.
func (s *Store) change(ctx context.Context, tx *sql.Tx, c stores.Change, w *sqlstore.Condition) (stores.Changed, error) {
	limit := min(c.Limit, maxChange)
	scanned := w.Clone()
	scanned.And("f.number > ?", c.After)
	if c.UpTo > 0 {
		scanned.And("f.number <= ?", c.UpTo)
	}
	numbers, err := sqlstore.List(ctx, tx, s.text(`SELECT f.number FROM {schema.}{prefix}failure f WHERE `+scanned.String()+` ORDER BY f.number LIMIT ?`),
		append(slices.Clip(scanned.Args), limit), func(scan sqlstore.Scan) (n int64, err error) { return n, scan(&n) })
	if err != nil {
		return stores.Changed{}, err
	}
	done := stores.Changed{Next: c.After, Done: len(numbers) < limit}
	if len(numbers) == 0 {
		return done, nil
	}
	done.Next = numbers[len(numbers)-1]
	b, err := s.free(ctx, tx, w, numbers)
	if err != nil {
		return stores.Changed{}, err
	}
	done.Changed, done.Busy = len(b.numbers), len(numbers)-len(b.numbers)
	if c.Verb == stores.VerbRetry {
		done.Redelivered = b.notKept
	}
	if len(b.numbers) == 0 {
		return done, nil
	}
	return done, s.changeAll(ctx, tx, c, b)
}

// free locks those of the rows that nobody has in hand and that are still as wanted.
func (s *Store) free(ctx context.Context, tx *sql.Tx, w *sqlstore.Condition, numbers []int64) (batch, error) {
	var b batch
	seen := make(map[string]bool)
	query := s.text(`SELECT f.number, f.consumer, f.content, CASE f.status WHEN 3 THEN f.order_key END
		FROM ` + bothRows + ` WHERE f.number IN ` + in(numbers) + ` AND ` + w.String() + `
		AND NOT (f.status = 3 AND f.reserved = 1 AND f.due_at > {now}) ORDER BY f.number FOR UPDATE SKIP LOCKED`)
	err := sqlstore.Each(ctx, tx, query, w.Args, func(scan sqlstore.Scan) error {
		var (
			number, consumer int64
			content          stores.ContentState
			key              []byte
		)
		if err := scan(&number, &consumer, &content, &key); err != nil {
			return err
		}
		b.numbers = append(b.numbers, number)
		if content != stores.ContentKept {
			b.notKept++
		}
		if k := string(appendInt(nil, consumer)) + " " + string(key); len(key) > 0 && !seen[k] {
			seen[k] = true
			b.orders = append(b.orders, order{consumer, number, string(key)})
		}
		return nil
	})
	return b, err
}

// statusWord is a status of f as stores.Status has it.
const statusWord = `CASE f.status WHEN 3 THEN 'pending' WHEN 4 THEN 'failed' WHEN 5 THEN 'discarded' ELSE 'unknown' END`

func (s *Store) changeAll(ctx context.Context, tx *sql.Tx, c stores.Change, b batch) error {
	// Nothing waits for one that may never come again.
	status, set := stores.StatusPending, `status = 3, attempts = 0, uncounted = 0, presumed = 0, suspect = suspect OR reserved, reserved = 0, redrives = redrives + 1,
		budget_at = {now}, due_at = {now}, placement = CASE content WHEN 1 THEN 1 ELSE 2 END, order_key = CASE content WHEN 1 THEN order_key END`
	if c.Verb == stores.VerbDiscard {
		status, set = stores.StatusDiscarded, `status = 5, due_at = NULL, suspect = suspect OR reserved, reserved = 0`
	}
	which := in(b.numbers)
	_, err := tx.ExecContext(ctx, s.text("INSERT INTO {schema.}{prefix}audit (at, verb, actor, reason, consumer, number, message_id, `before`, `after`) "+
		"SELECT {now}, ?, ?, ?, f.consumer, f.number, f.message_id, "+statusWord+", ? FROM {schema.}{prefix}failure f WHERE f.number IN "+which+" ORDER BY f.number"),
		[]byte(c.Verb), text(c.Actor, stores.MaxDetailBytes), text(c.Reason, stores.MaxDetailBytes), []byte(status.String()))
	if err != nil {
		return err
	}
	for _, query := range []string{
		`UPDATE {schema.}{prefix}failure SET {changed}, ` + set + ` WHERE number IN ` + which,
		`UPDATE {schema.}{prefix}inbox i JOIN {schema.}{prefix}failure f ON f.consumer = i.consumer AND f.message_id = i.message_id
			SET i.status = f.status WHERE f.number IN ` + which,
	} {
		if _, err := tx.ExecContext(ctx, s.text(query)); err != nil {
			return err
		}
	}
	if c.Verb == stores.VerbRetry {
		return nil
	}
	for _, o := range b.orders {
		if err := advance(ctx, short{tx}, s.sql, o.consumer, []byte(o.key), o.number); err != nil {
			return err
		}
	}
	return nil
}
