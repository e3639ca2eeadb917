package mysql

import (
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// maxRevision is the largest that fits a version: see sqlstore.Version.
const maxRevision = 1<<20 - 1

// statements are the texts for one set of table names.
type statements struct {
	names sqlstore.Names

	// Of attempts, with verbs of package fmt for values in safe forms.
	take, behind, mark, remove string
	next, wake                 string

	look, inHands                              string
	findConsumer, addConsumer, setTopics       string
	rewriteConsumer                            string
	seen, quarantine                           string
	settled, escaped, closeEscaped, closeLost  string
	now                                        string
	insertInbox, insert, read, lockInbox       string
	update, setContent, setStatus, keepContent string
	due, load, backlog                         string
	held, keepReleased, markReleased, decision string
}

// bothRows are those of a failed message. Who ends one locks both: a worker that puts off
// the next message of the order key holds only the inbox's.
const bothRows = `{schema.}{prefix}failure f STRAIGHT_JOIN {schema.}{prefix}inbox i ON i.consumer = f.consumer AND i.message_id = f.message_id`

// stateColumns are what stateScan takes; they are null where there is no failure.
const stateColumns = `f.number, f.revision, f.status, f.placement, f.content, f.class, f.attempts, f.uncounted, f.presumed,
	{now} - f.budget_at, CAST(f.due_at AS SIGNED) - {now}`

type stateScan struct {
	number, revision, status, placement, content, attempts, uncounted, presumed, age, dueIn *int64

	class []byte
}

func (s *stateScan) into() []any {
	return []any{&s.number, &s.revision, &s.status, &s.placement, &s.content, &s.class, &s.attempts, &s.uncounted, &s.presumed, &s.age, &s.dueIn}
}

func (s *stateScan) state() stores.FailureState {
	if s.number == nil {
		return stores.FailureState{}
	}
	n := func(p *int64) int64 {
		if p == nil {
			return 0
		}
		return *p
	}
	//nolint:gosec // only millpond writes them
	return stores.FailureState{
		Version:   sqlstore.Version(n(s.number), n(s.revision)),
		Status:    stores.Status(n(s.status)),
		Placement: stores.Placement(n(s.placement)),
		Content:   stores.ContentState(n(s.content)),
		Class:     stores.Class(s.class),
		Attempts:  int(n(s.attempts)),
		Uncounted: int(n(s.uncounted)),
		Presumed:  n(s.presumed) != 0,
		Age:       time.Duration(n(s.age)) * time.Microsecond,
		DueIn:     time.Duration(n(s.dueIn)) * time.Microsecond,
	}
}

func newStatements(names sqlstore.Names) *statements {
	x := func(query string) string { return expand(names, query) }
	return &statements{
		names: names,

		take: x(`SELECT f.order_key FROM ` + bothRows + `
			WHERE f.consumer = %d AND f.message_id = %s AND f.number = %d AND f.revision = %d AND f.status = 3 FOR UPDATE SKIP LOCKED`),
		behind: x(`SELECT 1 FROM {schema.}{prefix}failure e
			WHERE e.consumer = %d AND e.order_key = %s AND e.status = 3 AND e.number < %d AND ` + blocks + ` LIMIT 1`),
		mark:   x(`UPDATE {schema.}{prefix}inbox SET status = 1, completed_at = {now}, token = %d, traceparent = %s WHERE status = 3 AND `),
		remove: x(`DELETE FROM {schema.}{prefix}failure WHERE number = %d`),
		next: x(`SELECT number FROM {schema.}{prefix}failure
			WHERE consumer = %d AND order_key = %s AND status = 3 AND number > %d ORDER BY number LIMIT 1`),
		wake: x(`UPDATE {schema.}{prefix}failure SET {changed}, due_at = {now} WHERE number = %d`),

		look:    x(lookColumns + `? AND i.message_id = ?`),
		inHands: x(`SELECT 1 FROM {schema.}{prefix}inbox WHERE `),

		findConsumer: x(`SELECT id, topics FROM {schema.}{prefix}consumer WHERE service = ? AND handler = ?`),
		addConsumer:  x(`INSERT INTO {schema.}{prefix}consumer (service, handler, topics, registered_at) VALUES (?, ?, ?, {now})`),
		setTopics:    x(`UPDATE {schema.}{prefix}consumer SET topics = ? WHERE id = ?`),

		rewriteConsumer: x(`UPDATE {schema.}{prefix}consumer SET registered_at = registered_at + ? WHERE id = ?`),

		seen: x(`UPDATE {schema.}{prefix}quarantine SET seen = seen + 1, last_at = {now}
			WHERE consumer = ? AND identity_hash = ? AND fingerprint = ? AND reason = ?`),
		quarantine: x(`INSERT INTO {schema.}{prefix}quarantine
			(consumer, identity_hash, fingerprint, reason, detail, message_id, existing, topic, coordinates, uuid, metadata, payload, codec, one_way, first_at, last_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, {now})`),

		settled: x(`SELECT status FROM {schema.}{prefix}inbox WHERE consumer = ? AND message_id = ? LOCK IN SHARE MODE`),
		escaped: x(`SELECT status FROM {schema.}{prefix}inbox WHERE consumer = ? AND message_id = ? AND token = ?`),
		closeEscaped: x(`UPDATE {schema.}{prefix}inbox SET status = 2
			WHERE consumer = ? AND message_id = ? AND token = ? AND status = 1`),
		closeLost: x(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, completed_at, token, fingerprint, traceparent)
			VALUES (?, ?, 2, {now}, ?, ?, ?)`),

		now: x(`SELECT {now}`),
		insertInbox: x(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint, traceparent)
			VALUES (?, ?, ?, ?, ?)`),
		insert: x(`INSERT INTO {schema.}{prefix}failure (status, placement, presumed, attempts, uncounted, due_at, order_until,
				budget_at, last_at, class, cause, error, topic, coordinates, order_key, history, consumer, message_id, first_at, content)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, last_at, 0)`),
		read: x(`SELECT f.presumed, f.content, f.attempts, f.uncounted, f.budget_at, f.last_at, f.class, f.cause, f.error, f.topic, f.coordinates, f.order_key, f.history
			FROM ` + bothRows + `
			WHERE f.consumer = ? AND f.message_id = ? AND f.number = ? AND f.revision = ? AND f.status = 3 FOR UPDATE SKIP LOCKED`),
		lockInbox: x(`SELECT status FROM {schema.}{prefix}inbox WHERE consumer = ? AND message_id = ? FOR UPDATE NOWAIT`),
		update: x(`UPDATE {schema.}{prefix}failure SET {changed}, reserved = 0, suspect = 0, status = ?, placement = ?, presumed = ?,
				attempts = ?, uncounted = ?, due_at = ?, order_until = ?, budget_at = ?, last_at = ?, class = ?, cause = ?, error = ?,
				topic = ?, coordinates = ?, order_key = ?, history = ?
			WHERE number = ?`),
		setContent: x(`UPDATE {schema.}{prefix}failure SET content = ?, codec = ?, uuid = ?, metadata = ?, payload = ? WHERE number = ?`),
		keepContent: x(`UPDATE {schema.}{prefix}failure SET {changed}, content = ?, codec = ?, uuid = ?, metadata = ?, payload = ?
			WHERE consumer = ? AND message_id = ? AND number = ? AND revision = ? AND status IN (4, 5) AND content = 0`),
		setStatus: x(`UPDATE {schema.}{prefix}inbox SET status = ? WHERE consumer = ? AND message_id = ? AND status = 3`),

		due: x(`SELECT f.number FROM {schema.}{prefix}failure f
			WHERE f.consumer = ? AND f.status = 3 AND f.placement = 1 AND f.due_at <= {now} ORDER BY f.due_at LIMIT ?`),
		load: x(`SELECT ` + stateColumns + `, f.message_id, i.fingerprint, i.traceparent, f.topic, f.coordinates, f.order_key,
				f.codec, f.uuid, f.metadata, f.payload, f.error, f.cause
			FROM {schema.}{prefix}failure f
			LEFT JOIN {schema.}{prefix}inbox i ON i.consumer = f.consumer AND i.message_id = f.message_id
			WHERE f.number IN `),
		backlog: x(`SELECT count(*), {now} - min(due_at) FROM (
				SELECT due_at FROM {schema.}{prefix}failure
				WHERE consumer = ? AND status = 3 AND placement = 1 AND due_at <= {now} ORDER BY due_at LIMIT ?) due`),

		held: x(`SELECT status, one_way, reason, detail FROM {schema.}{prefix}quarantine WHERE id = ? FOR UPDATE`),
		markReleased: x(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint)
			SELECT consumer, ?, 3, nullif(fingerprint, x'') FROM {schema.}{prefix}quarantine WHERE id = ?`),
		keepReleased: x(`INSERT INTO {schema.}{prefix}failure (consumer, message_id, status, placement, content, attempts, uncounted,
				due_at, budget_at, first_at, last_at, class, cause, error, topic, coordinates, history, codec, uuid, metadata, payload)
			SELECT consumer, ?, 3, 1, 1, 0, 0, {now}, {now}, {now}, {now}, ?, ?, ?, topic, coordinates, '[]', codec, uuid, metadata, payload
			FROM {schema.}{prefix}quarantine WHERE id = ?`),
		decision: x(`UPDATE {schema.}{prefix}quarantine SET status = ?, decided_at = if(? = 'held', NULL, {now})
			WHERE id = ? AND status = ?`),
	}
}
