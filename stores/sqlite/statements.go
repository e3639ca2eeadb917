package sqlite

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// stateColumns are the columns that stateOf and sqlstore.State read.
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

// The statements prepared once per connection.
const (
	beginStatement = iota
	claimStatement
	claimUnlessStatement
	staleStatement
	lookStatement
	takeStatement
	takeInOrderStatement
	takeStepsStatement
	completeStatement
	advanceStatement
	unclaimStatement
	saveStatement
	keepStatement
	undoStatement
	commitStatement
	rollbackStatement
	preparedStatements
)

// newStatements returns the texts that the writer connection prepares.
func newStatements(d *sqlstore.Dialect) (texts [preparedStatements]string) {
	for i, text := range [preparedStatements]string{
		beginStatement: "BEGIN IMMEDIATE",
		claimStatement: `INSERT INTO {schema.}{prefix}inbox (consumer, message_id, fingerprint, traceparent, status, completed_at)
			VALUES (?, ?, ?, ?, 2, {now})`,
		claimUnlessStatement: `INSERT INTO {schema.}{prefix}inbox (consumer, message_id, fingerprint, traceparent, status, completed_at)
			SELECT ?1, ?2, ?3, ?4, 2, {now} WHERE NOT EXISTS (
				SELECT 1 FROM {schema.}{prefix}failure e WHERE e.consumer = ?1 AND e.order_key = ?5 AND e.status = 3 AND {blocks})
			AND NOT EXISTS (SELECT 1 FROM {schema.}{prefix}consumer WHERE id = ?1 AND purged_through > ?6)`,
		staleStatement: `SELECT purged_through FROM {schema.}{prefix}consumer WHERE id = ? AND purged_through > ?`,
		lookStatement: `SELECT i.status, i.completed_at, i.fingerprint, i.traceparent, f.order_key, {state}
			FROM {schema.}{prefix}inbox i
			LEFT JOIN {schema.}{prefix}failure f ON i.status <> 2 AND f.consumer = i.consumer AND f.message_id = i.message_id
			WHERE i.consumer = ? AND i.message_id = ?`,
		takeStatement: `DELETE FROM {schema.}{prefix}failure
			WHERE consumer = ? AND message_id = ? AND number = ? AND revision = ? AND status = 3`,
		takeInOrderStatement: `DELETE FROM {schema.}{prefix}failure
			WHERE consumer = ?1 AND message_id = ?2 AND number = ?3 AND revision = ?4 AND status = 3 AND NOT EXISTS (
				SELECT 1 FROM {schema.}{prefix}failure e WHERE e.consumer = ?1 AND e.order_key = ?5 AND e.status = 3 AND e.number < ?3 AND {blocks})`,
		takeStepsStatement: `DELETE FROM {schema.}{prefix}once WHERE consumer = ? AND message_id = ?`,
		completeStatement: `UPDATE {schema.}{prefix}inbox SET status = 2, completed_at = {now}, traceparent = ?
			WHERE consumer = ? AND message_id = ? AND status = 3`,
		// Makes an order key's next message due, unless it is reserved.
		advanceStatement: `UPDATE {schema.}{prefix}failure SET {changed}, due_at = {now}
			WHERE number = (SELECT min(number) FROM {schema.}{prefix}failure WHERE consumer = ? AND order_key = ? AND status = 3)
			AND NOT reserved AND NOT presumed AND due_at > {now}`,
		unclaimStatement:  `DELETE FROM {schema.}{prefix}inbox WHERE consumer = ? AND message_id = ?`,
		saveStatement:     "SAVEPOINT millpond_member",
		keepStatement:     "RELEASE millpond_member",
		undoStatement:     "ROLLBACK TO millpond_member",
		commitStatement:   "COMMIT",
		rollbackStatement: "ROLLBACK",
	} {
		texts[i] = d.SQL(text)
	}
	return texts
}

// lazyStatement is prepared at its first use, because the tables may not exist earlier.
type lazyStatement struct {
	db    *sql.DB
	query string

	stmt atomic.Pointer[sql.Stmt]
}

func (l *lazyStatement) get(ctx context.Context) (*sql.Stmt, error) {
	if stmt := l.stmt.Load(); stmt != nil {
		return stmt, nil
	}
	stmt, err := l.db.PrepareContext(ctx, l.query)
	if err != nil {
		return nil, err
	}
	if !l.stmt.CompareAndSwap(nil, stmt) { // another goroutine was faster
		_ = stmt.Close() //nolint:sqlclosecheck // the other one is kept
	}
	return l.stmt.Load(), nil
}
