package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

const (
	// maxDue is how many rows one call of Due looks at in one transaction.
	maxDue = 500
	// maxLooks is how often Due looks again, where all it has found waits for others.
	maxLooks = 8
)

// Due implements stores.Retries, in one trip if nothing is due. What is due is found
// without locks, and locked by its numbers: a locking read of the index would lock, for a
// moment, what comes after it, and who wants to claim that passes locked rows by.
func (s *Store) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	consumer, err := s.consumer(q.Consumer)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 || q.Reserve <= 0 {
		return nil, errors.New("mysql: due: Limit and Reserve must be positive")
	}
	limit := min(q.Limit, maxDue)
	for range maxLooks {
		numbers, err := sqlstore.List(ctx, s.db, s.sql.due, []any{consumer, limit}, func(scan sqlstore.Scan) (n int64, err error) { return n, scan(&n) })
		if err != nil {
			return nil, s.unavailable(err)
		}
		if len(numbers) == 0 {
			return nil, nil
		}
		var due []stores.Retry
		err = s.transact(ctx, func(tx *sql.Tx) error {
			due, err = s.reserve(ctx, tx, q, consumer, numbers)
			return err
		})
		if err != nil {
			return nil, s.unavailable(err)
		}
		if len(due) > 0 || len(numbers) < limit {
			return due, nil
		}
	}
	return nil, nil
}

// reserve goes through due rows that nobody has. Those that wait behind another one are
// put off, so that they are not met again and again.
func (s *Store) reserve(ctx context.Context, tx *sql.Tx, q stores.DueQuery, consumer int64, numbers []int64) ([]stores.Retry, error) {
	var free, ordered []int64
	suspect := make(map[int64]bool)
	err := sqlstore.Each(ctx, tx, s.text(`SELECT f.number, f.reserved OR f.suspect, f.order_key IS NOT NULL FROM {schema.}{prefix}failure f
		WHERE f.number IN `+in(numbers)+` AND f.status = 3 AND f.placement = 1 AND f.due_at <= {now} ORDER BY f.due_at, f.number FOR UPDATE SKIP LOCKED`), nil, func(scan sqlstore.Scan) error {
		var (
			number          int64
			had, hasAnOrder bool
		)
		if err := scan(&number, &had, &hasAnOrder); err != nil {
			return err
		}
		suspect[number] = had
		free = append(free, number)
		if hasAnOrder {
			ordered = append(ordered, number)
		}
		return nil
	})
	if err == nil && len(ordered) > 0 {
		free, err = s.putOff(ctx, tx, consumer, free, ordered)
	}
	if err != nil || len(free) == 0 {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, s.text(`UPDATE {schema.}{prefix}failure SET {changed}, suspect = suspect OR reserved, reserved = 1, due_at = {now} + ? WHERE number IN `+in(free)), q.Reserve.Microseconds())
	if err != nil {
		return nil, err
	}
	return s.load(ctx, tx, q.Consumer, free, suspect)
}

// putOff puts off those of the ordered rows that wait behind an earlier one, and returns
// the rest of free. Each becomes due when it is its turn: what ends the one before it
// passes a row by that is locked. So it is put off for long only while the one before it
// is held here, and cannot end meanwhile. One that runs, or may begin to just now, cannot
// be held; then, and where nobody could notice that a row has come, it is asked for often.
func (s *Store) putOff(ctx context.Context, tx *sql.Tx, consumer int64, free, ordered []int64) ([]int64, error) {
	waiting, err := s.waiting(ctx, tx, ordered)
	if err != nil || len(waiting) == 0 {
		return free, err
	}
	held, err := s.hold(ctx, tx, consumer, waiting)
	if err != nil {
		return free, err
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
		cases += fmt.Sprintf(" WHEN %d THEN %d", number, w.pause(held[w.before]).Microseconds())
	}
	_, err = tx.ExecContext(ctx, s.text(`UPDATE {schema.}{prefix}failure SET {changed}, suspect = suspect OR reserved, reserved = 0,
		due_at = {now} + CASE number`+cases+` END WHERE number IN `+in(off)))
	return rest, err
}

// hold keeps those before the waiting rows from ending, and returns their numbers. It locks
// their rows of the inbox, without which nobody ends them, and not those of their failures:
// what ends the ones before these passes a failure by that is locked, and must wake it.
func (s *Store) hold(ctx context.Context, tx *sql.Tx, consumer int64, waiting map[int64]waits) (map[int64]bool, error) {
	held, numbers := make(map[int64]bool), make(map[string]int64)
	var ids []byte
	for _, w := range waiting {
		if _, known := numbers[w.beforeID]; known || w.beforeID == "" {
			continue
		}
		numbers[w.beforeID] = w.before
		if len(ids) > 0 {
			ids = append(ids, ',')
		}
		ids = appendBytes(ids, []byte(w.beforeID))
	}
	if len(ids) == 0 {
		return held, nil
	}
	lock := "FOR SHARE"
	if s.server.maria {
		lock = "LOCK IN SHARE MODE"
	}
	err := sqlstore.Each(ctx, tx, s.text(fmt.Sprintf(`SELECT message_id FROM {schema.}{prefix}inbox
		WHERE consumer = %d AND status = 3 AND message_id IN (%s) %s SKIP LOCKED`, consumer, ids, lock)), nil, func(scan sqlstore.Scan) error {
		var id string
		err := scan(&id)
		held[numbers[id]] = true
		return err
	})
	return held, err
}

// waits says for what a row waits: the first of its order key, and the one before it,
// which has an ID here if nobody has it and it is not due.
type waits struct {
	head, before int64
	beforeID     string
	headDueIn    time.Duration
}

func (w waits) pause(held bool) time.Duration {
	switch {
	case !held:
		return time.Second
	case w.before == w.head:
		return max(min(w.headDueIn, time.Minute), time.Second)
	}
	return max(w.headDueIn, time.Minute)
}

// waiting returns those of the rows that wait behind another one.
func (s *Store) waiting(ctx context.Context, tx *sql.Tx, ordered []int64) (map[int64]waits, error) {
	waiting := make(map[int64]waits)
	err := sqlstore.Each(ctx, tx, s.text(`SELECT w.number, w.first, w.before_, CAST(h.due_at AS SIGNED) - {now},
			CASE WHEN b.due_at > {now} AND b.reserved = 0 AND b.presumed = 0 THEN b.message_id ELSE '' END
		FROM (SELECT f.number, (SELECT min(e.number) FROM {schema.}{prefix}failure e
				WHERE e.consumer = f.consumer AND e.order_key = f.order_key AND e.status = 3 AND e.number < f.number AND `+blocks+`) AS first,
			(SELECT max(e.number) FROM {schema.}{prefix}failure e
				WHERE e.consumer = f.consumer AND e.order_key = f.order_key AND e.status = 3 AND e.number < f.number) AS before_
			FROM {schema.}{prefix}failure f WHERE f.number IN `+in(ordered)+`) w
		JOIN (SELECT number AS head, due_at FROM {schema.}{prefix}failure) h ON h.head = w.first
		JOIN {schema.}{prefix}failure b ON b.number = w.before_`), nil, func(scan sqlstore.Scan) error {
		var number, dueIn int64
		var w waits
		err := scan(&number, &w.head, &w.before, &dueIn, &w.beforeID)
		w.headDueIn = time.Duration(dueIn) * time.Microsecond
		waiting[number] = w
		return err
	})
	return waiting, err
}

// load reads the reserved rows, in their order.
func (s *Store) load(ctx context.Context, tx *sql.Tx, c stores.Consumer, numbers []int64, suspect map[int64]bool) ([]stores.Retry, error) {
	loaded := make(map[int64]stores.Retry, len(numbers))
	err := sqlstore.Each(ctx, tx, s.sql.load+in(numbers), nil, func(scan sqlstore.Scan) error {
		r, err := scanRetry(scan)
		if err != nil {
			return err
		}
		r.Key.Consumer = c
		number, _ := sqlstore.ParseVersion(r.State.Version)
		r.Suspect = suspect[number]
		loaded[number] = r
		return nil
	})
	due := make([]stores.Retry, 0, len(loaded))
	for _, number := range numbers {
		if r, ok := loaded[number]; ok {
			due = append(due, r)
		}
	}
	return due, err
}

// scanRetry reads a row of the load statement.
func scanRetry(scan sqlstore.Scan) (stores.Retry, error) {
	var (
		r                                  stores.Retry
		state                              stateScan
		fingerprint, trace, uuid, metadata []byte
	)
	if err := scan(append(state.into(), &r.Key.ID, &fingerprint, &trace, &r.Topic, &r.Coordinates, &r.OrderKey,
		&r.Content.Codec, &uuid, &metadata, &r.Content.Payload, &r.LastError, &r.Cause)...); err != nil {
		return r, err
	}
	r.State = state.state()
	r.Fingerprint, _ = stores.ParseFingerprint(fingerprint) // one of a later version cannot be compared
	copy(r.TraceParent[:], trace)
	r.Content.State, r.Content.UUID = r.State.Content, string(uuid)
	r.Content.Metadata, r.Err = sqlstore.DecodeMetadata(metadata)
	return r, nil
}

// Release implements stores.Retries. What somebody changes just now is left to them.
func (s *Store) Release(ctx context.Context, reserved []stores.Retry) error {
	if len(reserved) == 0 {
		return nil
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	pairs := ""
	for i, r := range reserved {
		number, revision := sqlstore.ParseVersion(r.State.Version)
		if i > 0 {
			pairs += ","
		}
		pairs += fmt.Sprintf("(%d,%d)", number, revision)
	}
	err := s.transact(ctx, func(tx *sql.Tx) error {
		free, err := sqlstore.List(ctx, tx, s.text(`SELECT number FROM {schema.}{prefix}failure
			WHERE (number, revision) IN (`+pairs+`) AND status = 3 AND reserved = 1 FOR UPDATE SKIP LOCKED`), nil, func(scan sqlstore.Scan) (n int64, err error) {
			return n, scan(&n)
		})
		if err != nil || len(free) == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, s.text(`UPDATE {schema.}{prefix}failure SET {changed}, reserved = 0, due_at = {now} WHERE number IN `+in(free)))
		return err
	})
	if err != nil {
		return s.unavailable(err)
	}
	return nil
}

// Backlog implements stores.Retries, in one trip for each consumer.
func (s *Store) Backlog(ctx context.Context, limit int) ([]stores.Backlog, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := s.consumersNamed(ctx, "", "")
	if err != nil {
		return nil, s.unavailable(err)
	}
	var backlog []stores.Backlog
	for _, id := range all.IDs() {
		b := stores.Backlog{Consumer: all[id]}
		var oldest sql.NullInt64
		if err := s.db.QueryRowContext(ctx, s.sql.backlog, id, limit).Scan(&b.Due, &oldest); err != nil {
			return nil, s.unavailable(err)
		}
		if b.Oldest = time.Duration(oldest.Int64) * time.Microsecond; b.Due > 0 {
			backlog = append(backlog, b)
		}
	}
	return backlog, nil
}
