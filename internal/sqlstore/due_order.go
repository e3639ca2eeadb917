package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	// An overdue message that the broker has not redelivered keeps its place for OrderWait at most:
	// it may be lost.
	waitingDue = `SELECT w.number, w.head, w.before_, h.due_at - {now},
	CASE WHEN b.due_at > {now} AND NOT b.reserved AND NOT b.presumed THEN b.message_id ELSE {empty} END
FROM (SELECT f.number, (SELECT min(e.number) FROM {schema.}{prefix}failure e
		WHERE e.consumer = f.consumer AND e.order_key = f.order_key AND e.status = 3 AND e.number < f.number
		AND (e.placement = 1 OR e.order_until > {now})) AS head,
	(SELECT max(e.number) FROM {schema.}{prefix}failure e
		WHERE e.consumer = f.consumer AND e.order_key = f.order_key AND e.status = 3 AND e.number < f.number) AS before_
	FROM {schema.}{prefix}failure f WHERE %s) w
JOIN {schema.}{prefix}failure h ON h.number = w.head
JOIN {schema.}{prefix}failure b ON b.number = w.before_`

	holdDue = `SELECT message_id FROM {schema.}{prefix}inbox WHERE consumer = ? AND status = 3 AND message_id IN (%s){share}`

	putOffDue = `UPDATE {schema.}{prefix}failure SET {changed}, suspect = suspect OR reserved, reserved = false, holder = NULL,
due_at = {now} + CASE number%s END WHERE `
)

// waits has what a row waits for: the first row of its order key, and the row before it, whose id
// is set if it is neither reserved nor due.
type waits struct {
	head, before int64
	beforeID     string
	headDueIn    time.Duration
}

func (d *due) pause(w waits, held bool) time.Duration {
	switch {
	case d.t.Dialect().Alone: // it is woken
		return max(w.headDueIn, time.Second)
	case !held:
		return time.Second
	case w.before == w.head:
		return max(min(w.headDueIn, time.Minute), time.Second)
	}
	return max(w.headDueIn, time.Minute)
}

// putOff postpones the ordered rows behind an earlier one, and returns the rest of free. When the
// earlier row ends, it makes the next one due, unless the next one is locked at that moment. So a
// row is postponed for long only while its predecessor is locked here and cannot end. A predecessor
// that runs, or may begin to run now, cannot be locked. Then, and where no wake-up is possible, the
// row is polled often.
func (d *due) putOff(ctx context.Context, tx Sender, free, ordered []int64) ([]int64, error) {
	waiting := make(map[int64]waits)
	_, err := list(ctx, tx, d.t.in(waitingDue, "f.number", ordered), func(rows Rows) (number int64, err error) {
		var w waits
		var dueIn int64
		err = rows.Scan(&number, &w.head, &w.before, &dueIn, &w.beforeID)
		w.headDueIn = time.Duration(dueIn) * time.Microsecond
		waiting[number] = w
		return number, err
	})
	if err != nil || len(waiting) == 0 {
		return free, err
	}
	held := make(map[int64]bool)
	if !d.t.Dialect().Alone {
		if held, err = d.hold(ctx, tx, waiting); err != nil {
			return free, err
		}
	}
	for _, number := range free {
		held[number] = true
	}
	var rest, off []int64
	cases := ""
	for _, number := range free {
		w, waits := waiting[number]
		if !waits {
			rest = append(rest, number)
			continue
		}
		off = append(off, number)
		cases += fmt.Sprintf(" WHEN %d THEN %d", number, d.pause(w, held[w.before]).Microseconds())
	}
	_, err = tx.Send(ctx, d.t.in(strings.Replace(putOffDue, "%s", cases, 1)+"%s", "number", off))
	return rest, err
}

// hold keeps the predecessors of the waiting rows from ending, and returns their numbers. It locks
// their inbox rows, which every end needs. It does not lock their failures: the ends of earlier
// messages skip locked failures, but must wake these.
func (d *due) hold(ctx context.Context, tx Sender, waiting map[int64]waits) (map[int64]bool, error) {
	held, numbers := make(map[int64]bool), make(map[string]int64)
	var ids []any
	for _, w := range waiting {
		if _, known := numbers[w.beforeID]; !known && w.beforeID != "" {
			numbers[w.beforeID] = w.before
			ids = append(ids, []byte(w.beforeID))
		}
	}
	if len(ids) == 0 {
		return held, nil
	}
	holding := func(ids []any) Statement {
		marks := "?" + strings.Repeat(", ?", len(ids)-1)
		return Statement{Text: d.t.sql(strings.Replace(holdDue, "%s", marks, 1)), Args: append([]any{d.consumer}, ids...)}
	}
	err := listFree(ctx, d.t, tx, ids, holding, func(rows Rows) (id string, err error) {
		err = rows.Scan(&id)
		held[numbers[id]] = true
		return id, err
	})
	return held, err
}
