package tables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// maxChange bounds the rows in one batch of Change: each takes a lock, and the server has room for
// some thousands.
const maxChange = 1000

// Change implements stores.Inspector, in one transaction. It skips locked rows, so it never waits
// for a delivery, and a delivery never waits for it.
func (s Store) Change(ctx context.Context, c stores.Change) (done stores.Changed, err error) {
	var scanned, redelivered, reserved int
	limit := min(c.Limit, maxChange)
	err = s.t.shared.Inspect(ctx, c.Limit, func() error {
		concerned, next, err := s.t.shared.Changeable(ctx, c)
		if err != nil {
			return err
		}
		change := changeOf[c.Verb]
		left := "AND NOT (" + sqlstore.Reserved + ")"
		if c.Break {
			left = ""
		}
		args := append(append(next.Args, limit), concerned.Args...)
		args = append(args, s.t.lockPrefix)
		found, locked := false, ""
		statement := func(text string, args []any, read func(Rows) error) Statement {
			text = strings.NewReplacer("{next}", next.String(), "{concerned}", concerned.String(), "{left}", left, "{locked}", locked,
				"{change}", change.text, "{then}", change.then, "{completed}", change.completed, "{steps}", change.steps).Replace(text)
			return Statement{Text: s.t.dialect.SQL(text), Args: args, Read: read}
		}
		var statements []Statement
		if change.steps != "" {
			statements, locked = append(statements, statement(freeText+lockFree, args, nil)), lockedBefore
		}
		args = append(slices.Clone(args), string(c.Verb), sqlstore.Text(c.Actor, stores.MaxDetailBytes), sqlstore.Text(c.Reason, stores.MaxDetailBytes))
		statements = append(statements, statement(freeText+changeText, args, first(&found, &scanned, &done.Next, &done.Changed, &redelivered, &reserved)))
		if len(statements) == 1 {
			_, err = database{s.t}.Exec(ctx, statements[0])
			return err
		}
		return s.t.db.Batch(ctx, statements...)
	})
	if err != nil {
		return stores.Changed{}, err
	}
	if !c.Break {
		done.Reserved = reserved
	}
	done.Busy, done.Done, done.Next = scanned-done.Changed-done.Reserved, scanned < limit, max(done.Next, c.After)
	if c.Verb == stores.VerbRetry {
		done.Redelivered = redelivered
		s.t.wake(ctx, done.Changed-redelivered)
	}
	return done, nil
}

var freeText = `WITH scanned AS MATERIALIZED (
	SELECT f.number, ` + sqlstore.Reserved + ` AS held FROM {schema.}{prefix}failure f WHERE {next} ORDER BY f.number LIMIT ?
), free AS MATERIALIZED (
	SELECT f.number, f.status, f.order_key, ` + sqlstore.Reserved + ` AS held FROM {schema.}{prefix}failure f
	WHERE f.number = ANY (SELECT p.one FROM unnest(ARRAY(SELECT number FROM scanned)) AS p (one) WHERE ` + fewNumbers + ` GROUP BY p.one) AND {concerned}
	{left} AND pg_try_advisory_xact_lock(` + fmt.Sprintf(LockKeyText, "?") + `){locked}
	FOR UPDATE SKIP LOCKED
)`

// If steps are deleted, an earlier statement locks the rows. Then the next one's snapshot has all
// recorded steps, and no more can be recorded. It changes only these rows.
const (
	lockFree     = " SELECT count(*) FROM free"
	lockedBefore = " AND f.xmax = pg_current_xact_id_if_assigned()::xid"
)

var changeText = `, changed AS (
	{change} free WHERE f.number = free.number
	RETURNING f.number, f.consumer, f.message_id, f.placement, {then} AS status, free.order_key, CASE WHEN free.held THEN 'reserved' ELSE ` + statusName("free.status") + ` END AS before
), gone AS (
	SELECT consumer, order_key, number FROM changed WHERE status <> 3
), ` + nextInOrder + `, marked AS (
	UPDATE {schema.}{prefix}inbox i SET status = {then}{completed} FROM changed
	WHERE i.consumer = changed.consumer AND i.message_id = changed.message_id AND i.status <> {then}
){steps}, audited AS (
	INSERT INTO {schema.}{prefix}audit (verb, actor, reason, consumer, number, message_id, before, after)
	SELECT ?::text, ?::text, ?::text, consumer, number, message_id, before, ` + statusName("{then}") + ` FROM changed
)
SELECT (SELECT count(*) FROM scanned), (SELECT coalesce(max(number), 0) FROM scanned),
	count(*), count(*) FILTER (WHERE placement = 2),
	(SELECT count(*) FROM scanned WHERE held AND number <> ALL (ARRAY(SELECT number FROM changed))) FROM changed`

// changeOf has what differs between the verbs.
var changeOf = map[stores.Verb]struct{ text, then, completed, steps string }{
	stores.VerbRetry:   {text: setFailure + retrySet + " FROM", then: "3"},
	stores.VerbDiscard: {text: setFailure + discardSet + " FROM", then: "5"},
	stores.VerbErase:   {text: setFailure + discardSet + ", " + sqlstore.Erased + " FROM", then: "5", steps: deleteSteps},
	stores.VerbResolve: {text: "DELETE FROM {schema.}{prefix}failure f USING", then: "2", completed: ", completed_at = now()", steps: deleteSteps},
}

const setFailure = "UPDATE {schema.}{prefix}failure f SET " + revised + ", "

// retrySet makes a message due with a fresh budget. A message without content waits for its
// redelivery, and blocks no order key, because the redelivery may never come.
const retrySet = `status = 3, placement = CASE WHEN f.content = 1 THEN 1 ELSE 2 END, attempts = 0, uncounted = 0,
order_key = CASE WHEN f.content = 1 THEN f.order_key END,
presumed = false, suspect = f.suspect OR f.reserved OR f.holder IS NOT NULL, reserved = false, holder = NULL, redrives = f.redrives + 1, budget_at = now(), due_at = now()`

const (
	discardSet = `status = 5, due_at = NULL, suspect = f.suspect OR f.reserved OR f.holder IS NOT NULL, reserved = false, holder = NULL`

	deleteSteps = `, steps AS (
	DELETE FROM {schema.}{prefix}once o USING changed WHERE o.consumer = changed.consumer AND o.message_id = changed.message_id
)`
)

// LockKeyText is Tables.LockKey for a failure called f, with the prefix as %s.
const LockKeyText = `('x' || encode(substr(sha256(%s::bytea || int8send(f.consumer) || f.message_id), 1, 8), 'hex'))::bit(64)::bigint`

// statusName returns SQL for the name of a status.
func statusName(number string) string {
	sql := "CASE"
	for _, s := range []stores.Status{stores.StatusCompleted, stores.StatusPending, stores.StatusFailed, stores.StatusDiscarded} {
		sql += fmt.Sprintf(" WHEN %s = %d THEN '%s'", number, s, s)
	}
	return sql + " END"
}

// Decide implements stores.Inspector.
func (s Store) Decide(ctx context.Context, d stores.Decision) error {
	err := s.Store.Decide(ctx, d)
	if err == nil && d.Verb == stores.VerbRelease {
		s.t.wake(ctx, 1)
	}
	return err
}
