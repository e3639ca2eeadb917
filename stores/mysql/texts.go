package mysql

import (
	"database/sql"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// texts makes the statements that begin and end attempts, with their values in them.
type texts struct {
	server
	isolation string // for SET TRANSACTION ISOLATION LEVEL

	// Beginnings of statements.
	insert, look, update              string
	insertValues, begins, completion  string // for MariaDB, to be prepared
	taken, behind, stale              string
	callBegin, callComplete, callEmit string
	callLook                          string
	remove, updateAll                 string // of batches
	callBatchClaim, callBatchComplete string
	settingsSaved, settingsRestored   string
}

const lookColumns = `SELECT i.status, i.completed_at, i.fingerprint, i.traceparent, {now} - i.completed_at, f.order_key, {state}
FROM {schema.}{prefix}inbox i
LEFT JOIN {schema.}{prefix}failure f ON i.status > 2 AND f.consumer = i.consumer AND f.message_id = i.message_id
WHERE i.consumer = `

func newTexts(d *sqlstore.Dialect, sv server, isolation sql.IsolationLevel) *texts {
	x := d.SQL
	t := &texts{
		server: sv, isolation: levelName(isolation),
		insert:       x("INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, completed_at, token, fingerprint, traceparent) "),
		look:         x(lookColumns),
		update:       x("UPDATE {schema.}{prefix}inbox SET status = 2 WHERE "),
		taken:        x("NOT EXISTS (SELECT 1 FROM {schema.}{prefix}inbox WHERE "),
		behind:       x("NOT EXISTS (SELECT 1 FROM {schema.}{prefix}failure e WHERE e.status = 3 AND {blocks} AND e.consumer = "),
		stale:        x("NOT EXISTS (SELECT 1 FROM {schema.}{prefix}consumer WHERE id = "),
		callBegin:    x("CALL {schema.}{prefix}begin("),
		callComplete: x("CALL {schema.}{prefix}complete("),
		callEmit:     x("CALL {schema.}{prefix}emit_complete("),
		callLook:     x("CALL {schema.}{prefix}look("),

		remove: x("DELETE FROM {schema.}{prefix}inbox WHERE "),
		// Without the hint a small table could be scanned, and wait for the locks of others.
		updateAll:         withoutWaiting + x("UPDATE {schema.}{prefix}inbox FORCE INDEX (PRIMARY) SET status = 2 WHERE consumer = "),
		callBatchClaim:    x("CALL {schema.}{prefix}batch_claim("),
		callBatchComplete: x("CALL {schema.}{prefix}batch_complete("),
	}
	if sv.maria { // for this statement only; on MySQL another statement checks the lock first
		t.insertValues = withoutWaiting + t.insert + "VALUES (?, ?, 1, " + now + ", ?, ?, ?)"
		t.begins, t.completion = "BEGIN NOT ATOMIC ", t.update+"consumer = ? AND message_id = ? AND token = ? AND status = 1; "+committed+"END"
		t.insert, t.update = withoutWaiting+t.insert, withoutWaiting+t.update
	}
	idle, running := t.timeouts()
	t.settingsSaved = "SET @millpond_autocommit = @@SESSION.autocommit, @millpond_idle = @@SESSION." + idle + ", @millpond_running = @@SESSION." + running
	t.settingsRestored = "SET SESSION autocommit = @millpond_autocommit, SESSION " + idle + " = @millpond_idle, SESSION " + running + " = @millpond_running"
	return t
}

// withoutWaiting begins a statement that fails at once instead of waiting for a lock.
const withoutWaiting = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "

func levelName(level sql.IsolationLevel) string {
	if level == sql.LevelRepeatableRead {
		return "REPEATABLE READ"
	}
	return "READ COMMITTED"
}

// claimed is a key with what its claim writes.
type claimed struct {
	consumer    int64
	id          []byte
	token       int64
	fingerprint []byte
	trace       []byte
	orderKey    []byte // nil: no order
	time        int64  // when the broker took the message; 0: not compared
	took        int64  // the version of the failure it took over; 0: a first claim
}

func newClaimed(consumer int64, c *stores.Claim, token int64) claimed {
	return claimed{
		consumer: consumer, id: c.Key.ID, token: token, fingerprint: c.Fingerprint.Bytes(), trace: sqlstore.TraceBytes(&c.TraceParent), orderKey: c.OrderKey,
	}
}

// claim is a plain insert that the primary key decides, and that waits for no lock: MariaDB has an
// option for this statement, and on MySQL another statement checks the lock first.
func (t *texts) claim(b []byte, c *claimed) []byte {
	looks := !t.maria && !t.looksFirst()
	if !looks && c.orderKey == nil && c.time == 0 {
		return put(b, t.insert, "VALUES (", c.consumer, ", ", c.id, ", 1, "+now+", ", c.token, ", ", c.fingerprint, ", ", c.trace, ")")
	}
	b = put(b, t.insert, "SELECT ", c.consumer, ", ", c.id, ", 1, "+now+", ", c.token, ", ", c.fingerprint, ", ", c.trace, " FROM DUAL WHERE ")
	if looks {
		b = put(t.key(put(b, t.taken), c.consumer, c.id), t.nowait(), ")")
	}
	and := looks
	if c.orderKey != nil {
		b = put(t.and(b, and), t.behind, c.consumer, " AND e.order_key = ", c.orderKey, ")")
		and = true
	}
	if c.time != 0 {
		b = put(t.and(b, and), t.stale, c.consumer, " AND purged_through > ", c.time, ")")
	}
	return b
}

func (*texts) and(b []byte, more bool) []byte {
	if more {
		b = put(b, " AND ")
	}
	return b
}

// looksFirst reports whether the lock is checked by a separate statement, outside the transaction.
// At REPEATABLE READ, reading a missing row locks the gap before the next one, so no other claim
// could be inserted there. TiDB has no such locks.
func (t *texts) looksFirst() bool {
	return t.callable() && t.isolation != levelName(sql.LevelReadCommitted)
}

func (t *texts) key(b []byte, consumer int64, id []byte) []byte {
	return put(b, "consumer = ", consumer, " AND message_id = ", id)
}

// finish is the guarded completion. It changes exactly the row that this transaction claimed;
// otherwise nothing is committed.
func (t *texts) finish(b []byte, c *claimed) []byte {
	return put(t.key(put(b, t.update), c.consumer, c.id), " AND token = ", c.token, " AND status = 1")
}

// committed is COMMIT if a row was changed. Otherwise it is an error, because no case of CASE
// matches.
const committed = "CASE ROW_COUNT() WHEN 1 THEN COMMIT; END CASE; "

// complete finishes and commits in one statement. It is an error if no row was changed; on MySQL
// the procedure signals it. On MariaDB it puts before in front.
func (t *texts) complete(b, before []byte, c *claimed, restore bool) []byte {
	if t.maria {
		b = append(put(b, "BEGIN NOT ATOMIC "), before...)
		return t.ended(put(t.finish(b, c), "; "+committed), restore)
	}
	return put(b, t.callComplete, c.consumer, ", ", c.id, ", ", c.token, ", ", restore, ")")
}

// emitComplete is complete on MySQL, with an output before it whose order key has this lock.
func (t *texts) emitComplete(b []byte, c *claimed, restore bool, lock any, output sqlstore.Statement) []byte {
	b = put(b, t.callEmit, c.consumer, ", ", c.id, ", ", c.token, ", ", restore, ", ", lock)
	for _, value := range asBytes(output).Args {
		b = put(b, ", ", value)
	}
	return put(b, ")")
}

// lookBack reads the row that prevented the claim, and rolls back.
func (t *texts) lookBack(b []byte, consumer int64, id []byte, restore bool) []byte {
	if t.maria {
		return t.ended(put(t.lookAt(put(b, "BEGIN NOT ATOMIC "), consumer, id), "; ROLLBACK; "), restore)
	}
	return put(b, t.callLook, consumer, ", ", id, ", ", restore, ")")
}

// ended is the end of a MariaDB block that ends an attempt.
func (t *texts) ended(b []byte, restore bool) []byte {
	if restore {
		b = put(b, t.settingsRestored, "; ")
	}
	return put(b, "END")
}

func (t *texts) lookAt(b []byte, consumer int64, id []byte) []byte {
	return put(b, t.look, consumer, " AND i.message_id = ", id)
}

// The settings of a connection that an attempt changes. They are restored on a caller's connection.

func (t *texts) timeouts() (idle, running string) {
	if t.maria {
		return "idle_transaction_timeout", "max_statement_time"
	}
	return "wait_timeout", "max_execution_time"
}

// bound makes the server end idle transactions. MySQL's bounds are at least a second, and bound no
// statements but SELECT.
func (t *texts) bound(d time.Duration) string {
	idle, running := t.timeouts()
	return "SET SESSION " + idle + " = " + strconv.FormatInt(seconds(d), 10) + ", SESSION " + running + " = " + strconv.FormatInt(t.runningLimit(d), 10)
}

func (t *texts) runningLimit(d time.Duration) int64 {
	if t.maria {
		return seconds(d)
	}
	return seconds(d) * 1000
}

// seconds rounds up.
func seconds(d time.Duration) int64 {
	const most = 365 * 24 * 3600
	return int64(min(math.Ceil(d.Seconds()), most))
}

// begin prepares a connection for an attempt, in steps that can be one statement on MariaDB. It
// ends the empty transaction that database/sql began.
func (t *texts) begin(bound time.Duration) []string {
	steps := []string{"COMMIT", t.settingsSaved, "SET TRANSACTION ISOLATION LEVEL " + t.isolation, "SET SESSION autocommit = 0"}
	if bound > 0 {
		steps = append(steps, t.bound(bound))
	}
	return steps
}

// beginClaim is begin and claim in one statement, or begin alone if c is nil.
func (t *texts) beginClaim(b []byte, c *claimed, bound time.Duration) []byte {
	if t.maria {
		b = put(b, "BEGIN NOT ATOMIC ")
		for _, step := range t.begin(bound) {
			b = put(b, step, "; ")
		}
		if c != nil {
			b = put(t.claim(b, c), "; ")
		}
		return put(b, "END")
	}
	b = put(b, t.callBegin)
	if c != nil {
		b = put(b, c.consumer, ", ", c.id, ", ", c.token, ", ", c.fingerprint, ", ", c.trace, ", ", c.orderKey)
	} else {
		b = put(b, strings.Repeat("NULL, ", 5)+"NULL")
	}
	return put(b, ", ", t.isolation == "READ COMMITTED", ", ", seconds(bound), ", ", t.runningLimit(bound), ")")
}
