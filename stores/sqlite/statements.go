package sqlite

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// statements are the texts for the configured table names.
type statements struct {
	prepared [preparedStatements]string // of the writer connection
	failures failureStatements

	version, tables                      string
	findConsumer, addConsumer, setTopics string
	seen, quarantine                     string
	resolve, fence, unfence              string
}

func newStatements(names sqlstore.Names) statements {
	expand := func(query string) string { return expand(names, query) }
	return statements{
		prepared: [preparedStatements]string{
			beginStatement: "BEGIN IMMEDIATE",
			claimStatement: expand(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, fingerprint, traceparent, status, completed_at)
				VALUES (?, ?, ?, ?, 2, {now})`),
			claimInOrderStatement: expand(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, fingerprint, traceparent, status, completed_at)
				SELECT ?1, ?2, ?3, ?4, 2, {now} WHERE NOT EXISTS (
					SELECT 1 FROM {schema.}{prefix}failure WHERE consumer = ?1 AND order_key = ?5 AND status = 3 AND ` + blocks("") + `)`),
			lookStatement: expand(`SELECT i.status, i.completed_at, i.fingerprint, i.traceparent, f.order_key, ` + stateColumns + `
				FROM {schema.}{prefix}inbox i
				LEFT JOIN {schema.}{prefix}failure f ON i.status <> 2 AND f.consumer = i.consumer AND f.message_id = i.message_id
				WHERE i.consumer = ? AND i.message_id = ?`),
			takeStatement: expand(`DELETE FROM {schema.}{prefix}failure
				WHERE consumer = ? AND message_id = ? AND number = ? AND revision = ? AND status = 3`),
			takeInOrderStatement: expand(`DELETE FROM {schema.}{prefix}failure
				WHERE consumer = ?1 AND message_id = ?2 AND number = ?3 AND revision = ?4 AND status = 3 AND NOT EXISTS (
					SELECT 1 FROM {schema.}{prefix}failure e WHERE e.consumer = ?1 AND e.order_key = ?5 AND e.status = 3 AND e.number < ?3 AND ` + blocks("e.") + `)`),
			completeStatement: expand(`UPDATE {schema.}{prefix}inbox SET status = 2, completed_at = {now}, traceparent = ?
				WHERE consumer = ? AND message_id = ? AND status = 3`),
			advanceStatement:  expand(advance),
			commitStatement:   "COMMIT",
			rollbackStatement: "ROLLBACK",
		},
		failures: newFailureStatements(names),

		version: expand(`SELECT coalesce(max(version), 0), coalesce(max(compatible), 0) FROM {schema.}{prefix}schema`),
		tables:  `SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name IN (?, ?, ?, ?, ?, ?)`,

		findConsumer: expand(`SELECT id, topics FROM {schema.}{prefix}consumer WHERE service = ? AND handler = ?`),
		addConsumer:  expand(`INSERT INTO {schema.}{prefix}consumer (service, handler, topics) VALUES (?, ?, ?)`),
		setTopics:    expand(`UPDATE {schema.}{prefix}consumer SET topics = ? WHERE id = ?`),

		seen: expand(`UPDATE {schema.}{prefix}quarantine SET seen = seen + 1, last_at = {now}
			WHERE consumer = ? AND identity_hash = ? AND fingerprint = ? AND reason = ?`),
		quarantine: expand(`INSERT INTO {schema.}{prefix}quarantine
			(consumer, identity_hash, fingerprint, reason, detail, message_id, existing, topic, coordinates, uuid, metadata, payload, codec, one_way)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`),

		resolve: expand(`SELECT i.status FROM {schema.}{prefix}inbox i JOIN {schema.}{prefix}consumer c ON c.id = i.consumer
			WHERE c.service = ? AND c.handler = ? AND i.message_id = ?`),
		fence:   expand(`INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (0, 0, 'fence')`),
		unfence: expand(`DELETE FROM {schema.}{prefix}schema WHERE version = 0`),
	}
}

// expand fills in the names of the tables, and
//   - {now}: microseconds since 1970 by SQLite's clock, which has milliseconds;
//   - {changed}: the assignment that every change of a failure makes. A revision may come
//     again after a million changes, when nobody remembers it.
func expand(names sqlstore.Names, query string) string {
	return names.Expand(strings.NewReplacer(
		"{now}", "CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)",
		"{changed}", "revision = (revision + 1) & "+strconv.FormatInt(maxRevision, 10),
	).Replace(query))
}

// lazyStatement is prepared when it is first used: tables may not exist before.
type lazyStatement struct {
	db    *sql.DB
	query string

	mu   sync.RWMutex
	stmt *sql.Stmt
}

func (l *lazyStatement) get(ctx context.Context) (*sql.Stmt, error) {
	l.mu.RLock()
	stmt := l.stmt
	l.mu.RUnlock()
	if stmt != nil {
		return stmt, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stmt != nil {
		return l.stmt, nil
	}
	stmt, err := l.db.PrepareContext(ctx, l.query)
	if err != nil {
		return nil, err
	}
	l.stmt = stmt
	return stmt, nil
}

func (l *lazyStatement) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stmt != nil {
		_ = l.stmt.Close()
	}
}
