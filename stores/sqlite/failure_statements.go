package sqlite

import (
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// maxRevision is the largest that fits a version: see sqlstore.Version.
const maxRevision = 1<<20 - 1

// failureStatements are the texts for messages that have failed.
type failureStatements struct {
	now                      string
	insertInbox, insert      string
	read, update             string
	setContent, setStatus    string
	keepContent              string
	advance                  string
	due, page, reserve, push string
	load, release, backlog   string
}

// stateColumns are what stateOf reads.
const stateColumns = `f.number, f.revision, f.status, f.placement, f.content, f.class, f.attempts, f.uncounted, f.presumed,
	{now} - f.budget_at, f.due_at - {now}`

const numStateColumns = 11

func stateOf(v []any) stores.FailureState {
	number := func(i int) int64 {
		n, _ := v[i].(int64)
		return n
	}
	class, _ := v[5].(string)
	//nolint:gosec // only millpond writes them
	return stores.FailureState{
		Version:   sqlstore.Version(number(0), number(1)),
		Status:    stores.Status(number(2)),
		Placement: stores.Placement(number(3)),
		Content:   stores.ContentState(number(4)),
		Class:     stores.Class(class),
		Attempts:  int(number(6)),
		Uncounted: int(number(7)),
		Presumed:  number(8) != 0,
		Age:       time.Duration(number(9)) * time.Microsecond,
		DueIn:     time.Duration(number(10)) * time.Microsecond,
	}
}

// advance makes the next message of an order key due, unless somebody has it in hand.
const advance = `UPDATE {schema.}{prefix}failure SET {changed}, due_at = {now}
	WHERE number = (SELECT min(number) FROM {schema.}{prefix}failure WHERE consumer = ? AND order_key = ? AND status = 3)
	AND NOT reserved AND NOT presumed AND due_at > {now}`

// dueRows are parked messages whose time has come.
const dueRows = `f.consumer = ? AND f.status = 3 AND f.placement = 1 AND f.due_at <= {now}`

// isNumber selects rows by their numbers: see array.
const isNumber = `number IN (SELECT value FROM json_each(?))`

// head is the time of the first message that f waits behind; null if there is none.
const head = `(SELECT p.due_at FROM {schema.}{prefix}failure p
	WHERE p.consumer = f.consumer AND p.order_key = f.order_key AND p.status = 3 AND p.number < f.number
	AND (p.placement = 1 OR p.order_until > {now}) ORDER BY p.number LIMIT 1)`

// blocks is the condition of pending messages that keep their order. One that the broker
// was to deliver again and did not keeps it no longer than it was told to: it may be gone.
func blocks(table string) string {
	return "(" + table + "placement = 1 OR " + table + "order_until > {now})"
}

func newFailureStatements(names sqlstore.Names) failureStatements {
	expand := func(query string) string { return expand(names, query) }
	return failureStatements{
		now: expand(`SELECT {now}`),
		insertInbox: expand(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint, traceparent)
			VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`),
		insert: expand(`INSERT INTO {schema.}{prefix}failure (consumer, message_id, status, placement, presumed, attempts, uncounted, due_at,
				budget_at, first_at, last_at, class, cause, error, topic, coordinates, order_key, history, order_until, content)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, 0)`),
		read: expand(`SELECT presumed, content, last_at, class, cause, error, order_key, history FROM {schema.}{prefix}failure
			WHERE consumer = ? AND message_id = ? AND number = ? AND revision = ? AND status = 3`),
		update: expand(`UPDATE {schema.}{prefix}failure SET {changed}, reserved = 0, suspect = 0, status = ?3, placement = ?4, presumed = ?5,
				attempts = ?6, uncounted = ?7, due_at = ?8, last_at = ?9,
				budget_at = CASE WHEN attempts = 0 AND uncounted = 0 THEN ?9 ELSE budget_at END, class = ?10, cause = ?11, error = ?12,
				topic = coalesce(nullif(?13, ''), topic), coordinates = coalesce(nullif(?14, ''), coordinates),
				order_key = coalesce(?15, order_key), history = ?16, order_until = ?17
			WHERE consumer = ?1 AND message_id = ?2 AND number = ?18 AND revision = ?19 AND status = 3`),
		setContent: expand(`UPDATE {schema.}{prefix}failure SET content = ?, codec = ?, uuid = ?, metadata = ?, payload = ? WHERE number = ?`),
		keepContent: expand(`UPDATE {schema.}{prefix}failure SET {changed}, content = ?, codec = ?, uuid = ?, metadata = ?, payload = ?
			WHERE consumer = ? AND message_id = ? AND number = ? AND revision = ? AND status IN (4, 5) AND content = 0`),
		setStatus: expand(`UPDATE {schema.}{prefix}inbox SET status = ? WHERE consumer = ? AND message_id = ? AND status = 3`),
		advance:   expand(advance),

		due: expand(`SELECT f.message_id FROM {schema.}{prefix}failure f WHERE ` + dueRows + ` LIMIT ?`),
		page: expand(`SELECT f.number, f.reserved OR f.suspect, ` + head + ` IS NOT NULL FROM {schema.}{prefix}failure f
			WHERE ` + dueRows + ` ORDER BY f.due_at, f.number LIMIT ?`),
		reserve: expand(`UPDATE {schema.}{prefix}failure SET {changed}, suspect = suspect OR reserved, reserved = 1, due_at = {now} + ? WHERE ` + isNumber),
		push: expand(`UPDATE {schema.}{prefix}failure AS f SET {changed}, suspect = suspect OR reserved, reserved = 0, due_at = max({now} + 1000000, coalesce(` + head + `, 0))
			WHERE ` + isNumber),
		load: expand(`SELECT ` + stateColumns + `, f.message_id, i.fingerprint, i.traceparent, f.topic, f.coordinates, f.order_key,
				f.codec, f.uuid, f.metadata, f.payload, f.error, f.cause
			FROM {schema.}{prefix}failure f
			LEFT JOIN {schema.}{prefix}inbox i ON i.consumer = f.consumer AND i.message_id = f.message_id
			WHERE f.` + isNumber),
		release: expand(`UPDATE {schema.}{prefix}failure SET {changed}, reserved = 0, due_at = {now}
			WHERE consumer = ? AND message_id = ? AND number = ? AND revision = ? AND status = 3 AND reserved`),
		backlog: expand(`SELECT c.service, c.handler,
				(SELECT count(*) FROM (SELECT 1 FROM {schema.}{prefix}failure f
					WHERE f.consumer = c.id AND f.status = 3 AND f.placement = 1 AND f.due_at <= {now} LIMIT ?)) AS n,
				(SELECT {now} - min(f.due_at) FROM {schema.}{prefix}failure f
					WHERE f.consumer = c.id AND f.status = 3 AND f.placement = 1 AND f.due_at <= {now})
			FROM {schema.}{prefix}consumer c WHERE n > 0 ORDER BY c.id`),
	}
}
