package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

const (
	// maxChange is how many rows one batch of Change reads and locks.
	maxChange = 1000

	scanFailures = `SELECT f.number, f.consumer, f.message_id, ` + Reserved + ` FROM {schema.}{prefix}failure f WHERE %s ORDER BY f.number LIMIT ?`

	lockFailures = `SELECT f.number, f.consumer, f.message_id, f.content, CASE WHEN f.status = 3 THEN f.order_key END FROM {both}
WHERE %s ORDER BY f.number{free}`

	// A message that was retried and has not changed since needs no change.
	notRetried = `NOT (f.status = 3 AND f.redrives > 0 AND f.attempts = 0 AND f.uncounted = 0 AND f.due_at <= {now} AND NOT f.presumed AND NOT f.reserved)`

	auditChange = `INSERT INTO {schema.}{prefix}audit (at, verb, actor, reason, consumer, number, message_id, {before}, {after})
SELECT {now}, ?, ?, ?, f.consumer, f.number, f.message_id,
	CASE WHEN ` + Reserved + ` THEN 'reserved' WHEN f.status = 3 THEN 'pending' WHEN f.status = 4 THEN 'failed' WHEN f.status = 5 THEN 'discarded' ELSE 'unknown' END, ?
FROM {schema.}{prefix}failure f WHERE %s ORDER BY f.number`

	// A fresh budget. A message without content waits for its redelivery. No other message waits
	// for it, because that redelivery may never come.
	retryFailures = `UPDATE {schema.}{prefix}failure SET {changed}, status = 3, attempts = 0, uncounted = 0, presumed = false,
	suspect = suspect OR reserved OR holder IS NOT NULL, reserved = false, holder = NULL, redrives = redrives + 1, budget_at = {now}, due_at = {now},
	placement = CASE WHEN content = 1 THEN 1 ELSE 2 END, order_key = CASE WHEN content = 1 THEN order_key END WHERE %s`
	discardFailures = `UPDATE {schema.}{prefix}failure SET {changed}, status = 5, due_at = NULL, suspect = suspect OR reserved OR holder IS NOT NULL, reserved = false, holder = NULL WHERE %s`

	eraseFailures = `UPDATE {schema.}{prefix}failure SET {changed}, status = 5, due_at = NULL, suspect = suspect OR reserved OR holder IS NOT NULL, reserved = false, holder = NULL, ` + Erased + ` WHERE %s`

	// Erased are the assignments that leave only a failure's key, origin and times. Content 6 is
	// for good: nothing is kept or retried under it.
	Erased = `content = 6, cause = '', error = '', order_key = NULL, history = '[]', codec = '', uuid = NULL, metadata = NULL, facts = NULL, payload = NULL`

	notErased = `f.content <> 6`

	resolveFailures = `DELETE FROM {schema.}{prefix}failure WHERE %s`
)

// changes has what each verb of Change does to messages.
var changes = map[stores.Verb]struct {
	status stores.Status
	text   string
	inbox  string // the new status of the inbox row
	when   string // the condition for a change
	steps  bool   // whether steps are deleted
}{
	stores.VerbRetry:   {status: stores.StatusPending, text: retryFailures, inbox: "3", when: notErased + " AND " + notRetried},
	stores.VerbDiscard: {status: stores.StatusDiscarded, text: discardFailures, inbox: "5", when: "f.status <> 5"},
	stores.VerbErase:   {status: stores.StatusDiscarded, text: eraseFailures, inbox: "5", when: notErased, steps: true},
	stores.VerbResolve: {status: stores.StatusCompleted, text: resolveFailures, inbox: "2, completed_at = {now}", steps: true},
}

// Changeable returns the condition of all rows that a change concerns, and that of the next ones
// among them.
func (t *Tables) Changeable(ctx context.Context, c stores.Change) (concerned, next *Condition, err error) {
	verb, ok := changes[c.Verb]
	if !ok {
		return nil, nil, mistakef("%s: %q is no verb for failed messages: use %q, %q, %q or %q", t.name, c.Verb, stores.VerbRetry, stores.VerbDiscard, stores.VerbResolve, stores.VerbErase)
	}
	if c.Verb == stores.VerbErase && len(c.Filter.Status) == 0 { // pending messages are erased only if Status names them
		c.Filter.Status = []stores.Status{stores.StatusFailed, stores.StatusDiscarded}
	}
	w, _, err := t.Matching(ctx, c.Filter)
	if err != nil {
		return nil, nil, err
	}
	if verb.when != "" {
		w.And(verb.when)
	}
	next = w.Clone()
	next.And("f.number > ?", c.After)
	if c.UpTo > 0 {
		next.And("f.number <= ?", c.UpTo)
	}
	return w, next, nil
}

// change is one batch of a Change.
type change struct {
	stores.Change
	t       *Tables
	running func(consumer int64, id string) bool
	advance Advance

	numbers []int64
	keys    []messageKey
	notKept int
	orders  []order // of pending messages
}

type messageKey struct {
	consumer int64
	id       []byte
}

type order struct {
	consumer, number int64 // of the first one removed
	key              string
}

// Change implements stores.Inspector for databases without a single statement for it. It skips
// locked rows, so it never waits for a delivery. running is as in ReserveDue.
func (t *Tables) Change(ctx context.Context, c stores.Change, running func(consumer int64, id string) bool, advance Advance) (done stores.Changed, err error) {
	err = t.Inspect(ctx, c.Limit, func() error {
		concerned, next, err := t.Changeable(ctx, c)
		if err != nil {
			return err
		}
		limit := min(c.Limit, maxChange)
		ch := change{Change: c, t: t, running: running, advance: advance}
		var numbers []int64 // of messages that are not running
		scan := Statement{Text: t.sql(strings.Replace(scanFailures, "%s", next.String(), 1)), Args: append(next.Args, limit)}
		left := 0
		seen, err := list(ctx, t.db, scan, func(rows Rows) (number int64, err error) {
			var consumer int64
			var id string
			var has bool
			err = rows.Scan(&number, &consumer, &id, &has)
			switch {
			case has && !c.Break:
				left++
			case running == nil || !running(consumer, id):
				numbers = append(numbers, number)
			}
			return number, err
		})
		if err == nil && len(numbers) > 0 {
			err = t.db.Write(ctx, func(tx Sender) error { return ch.write(ctx, tx, concerned, numbers) })
		}
		if err != nil {
			return err
		}
		done = stores.Changed{
			Changed: len(ch.numbers), Reserved: left, Busy: len(seen) - left - len(ch.numbers),
			Next: slices.Max(append(seen, c.After)), Done: len(seen) < limit,
		}
		if c.Verb == stores.VerbRetry {
			done.Redelivered = ch.notKept
		}
		return nil
	})
	if err != nil {
		return stores.Changed{}, err
	}
	return done, nil
}

// write changes the rows that it can lock in both tables, and writes the audit.
func (c *change) write(ctx context.Context, tx Sender, concerned *Condition, numbers []int64) error {
	if err := c.lock(ctx, tx, concerned, numbers); err != nil || len(c.numbers) == 0 {
		return err
	}
	verb := changes[c.Verb]
	audit := []any{string(c.Verb), Text(c.Actor, stores.MaxDetailBytes), Text(c.Reason, stores.MaxDetailBytes), verb.status.String()}
	for _, s := range []Statement{
		c.t.in(auditChange, "f.number", c.numbers, audit...),
		c.t.in(strings.Replace(c.t.Dialect().SetStatus, "%s", verb.inbox, 1)+"%s", "f.number", c.numbers),
		c.t.in(verb.text, "number", c.numbers),
	} {
		n, err := tx.Send(ctx, s)
		if err != nil {
			return err
		}
		if n > int64(len(c.numbers)) {
			return fmt.Errorf("%d rows were changed instead of %d", n, len(c.numbers))
		}
	}
	if c.Verb == stores.VerbRetry {
		return nil
	}
	for _, k := range c.keys { // one by one: a scan would wait for steps locked by others
		if !verb.steps {
			break
		}
		if _, err := tx.Send(ctx, Statement{Text: c.t.fixed(deleteSteps), Args: []any{k.consumer, k.id}}); err != nil {
			return err
		}
	}
	for _, o := range c.orders {
		if err := c.advance(ctx, tx, o.consumer, []byte(o.key), o.number); err != nil {
			return err
		}
	}
	return nil
}

// lock locks the rows that are not locked and still match.
func (c *change) lock(ctx context.Context, tx Sender, concerned *Condition, numbers []int64) error {
	c.numbers, c.keys, c.notKept, c.orders = nil, nil, 0, nil
	locking := func(numbers []int64) Statement {
		w := concerned.Clone()
		w.in(c.t.Dialect(), "f.number", numbers)
		if !c.Break {
			w.And("NOT (" + Reserved + ")")
		}
		return Statement{Text: c.t.sql(strings.Replace(lockFailures, "%s", w.String(), 1)), Args: w.Args}
	}
	seen := make(map[order]bool)
	return listFree(ctx, c.t, tx, numbers, locking, func(rows Rows) (number int64, err error) {
		var (
			consumer int64
			id, key  []byte
			content  stores.ContentState
		)
		if err := rows.Scan(&number, &consumer, &id, &content, &key); err != nil {
			return 0, err
		}
		if c.running != nil && c.running(consumer, string(id)) {
			return number, nil
		}
		c.numbers, c.keys = append(c.numbers, number), append(c.keys, messageKey{consumer, id})
		if content != stores.ContentKept {
			c.notKept++
		}
		if o := (order{consumer: consumer, key: string(key)}); len(key) > 0 && !seen[o] {
			seen[o] = true
			c.orders = append(c.orders, order{consumer, number, string(key)})
		}
		return number, nil
	})
}
