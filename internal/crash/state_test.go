package crash

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// state is what is committed, as an independent connection sees it.
type state struct {
	failures   map[key]failure
	audits     map[audited]int // how often
	inbox      map[key]inboxRow
	effects    map[key][]effect
	quarantine map[subject][]quarantined
	sold       map[string]int // by consumer, over all items
	outputs    map[key]int    // that are to be published
}

type inboxRow struct {
	status      stores.Status
	fingerprint []byte
	committed   time.Time // zero where the server does not keep it
}

func (r inboxRow) of(payload string) bool {
	return string(r.fingerprint) == string(stores.NewFingerprint(stores.FingerprintKey{}, []byte(payload)).Bytes())
}

// failure is what is kept beside the row of a message that is not completed.
type failure struct {
	number                        int64
	status                        stores.Status
	content                       stores.ContentState
	attempts, uncounted, redrives int
	presumed                      bool
	class                         stores.Class
	dueIn                         time.Duration
	text, payload                 string // of the last error, and what is kept
}

// audited is a decision that was carried out, on a failure or a row in quarantine.
type audited struct {
	verb   stores.Verb
	number int64
}

type effect struct {
	seq          int64 // in the order of writing
	part         int
	run, payload string
}

type quarantined struct {
	row    int64
	id     string
	reason stores.Reason
	seen   int
	status stores.QuarantineStatus
}

// formatID returns a stored id as its producer wrote it.
func formatID(stored []byte) string { return strings.TrimPrefix(keys.Format(stored), "u:") }

// ownID is SQL for the id that a message came with, of a row called so: one that was
// released from quarantine runs under another one, which is stores.ReleasedID.
func (d dialect) ownID(row string) string {
	return `coalesce((SELECT q.message_id FROM millpond_quarantine q WHERE q.status = 'released' AND ` + row + `.message_id = ` + d.released + `), ` + row + `.message_id)`
}

func newState() *state {
	return &state{
		failures:   make(map[key]failure),
		audits:     make(map[audited]int),
		inbox:      make(map[key]inboxRow),
		effects:    make(map[key][]effect),
		quarantine: make(map[subject][]quarantined),
		sold:       make(map[string]int),
		outputs:    make(map[key]int),
	}
}

// observer sees what is committed, past all faults.
type observer interface {
	// state reads everything.
	state(ctx context.Context) (*state, error)
	// settled reports whether a message that was just acked is completed, failed, kept for a
	// retry worker or in quarantine.
	settled(ctx context.Context, e *entry) (bool, error)
	// open counts what retry workers will try again. What nothing is kept of is the broker's: the
	// fleet waits for it, and an echo has died with its process. With operators it counts what they
	// have not got to yet, too. It asks once, as what is decided between two questions would be in
	// the answer to neither.
	open(ctx context.Context, operated bool) (int, error)
}

// sqlTables is the observer of a database of SQL.
type sqlTables struct{ *system }

// state implements observer. No parameters means no dialect.
func (s sqlTables) state(ctx context.Context) (*state, error) {
	st := newState()
	for _, read := range []struct {
		query string
		scan  func(*sql.Rows) error
	}{
		{
			`SELECT c.handler, ` + s.dialect.ownID("i") + `, i.status, i.fingerprint FROM millpond_inbox i JOIN millpond_consumer c ON c.id = i.consumer`,
			func(rows *sql.Rows) error {
				var (
					consumer string
					id       []byte
					r        inboxRow
				)
				err := rows.Scan(&consumer, &id, &r.status, &r.fingerprint)
				st.inbox[key{consumer, formatID(id)}] = r
				return err
			},
		},
		{
			`SELECT consumer, id, part, run, payload, ` + s.dialect.ordered + ` FROM effect`,
			func(rows *sql.Rows) error {
				var (
					k key
					e effect
				)
				err := rows.Scan(&k.consumer, &k.id, &e.part, &e.run, &e.payload, &e.seq)
				st.effects[k] = append(st.effects[k], e)
				return err
			},
		},
		{
			`SELECT c.handler, ` + s.dialect.ownID("f") + `, f.number, f.status, f.content, f.attempts, f.uncounted, f.redrives, f.presumed, f.class, f.error, f.payload, ` + s.dialect.dueIn + `
FROM millpond_failure f JOIN millpond_consumer c ON c.id = f.consumer`,
			func(rows *sql.Rows) error {
				var (
					consumer    string
					id, payload []byte
					f           failure
					due         float64
				)
				err := rows.Scan(&consumer, &id, &f.number, &f.status, &f.content, &f.attempts, &f.uncounted, &f.redrives, &f.presumed, &f.class, &f.text, &payload, &due)
				f.payload, f.dueIn = string(payload), time.Duration(due*float64(time.Second))
				st.failures[key{consumer, formatID(id)}] = f
				return err
			},
		},
		{
			`SELECT verb, number, count(*) FROM millpond_audit GROUP BY verb, number`,
			func(rows *sql.Rows) error {
				var (
					a audited
					n int
				)
				err := rows.Scan(&a.verb, &a.number, &n)
				st.audits[a] = n
				return err
			},
		},
		{
			`SELECT c.handler, q.id, q.message_id, q.reason, q.payload, q.seen, q.status FROM millpond_quarantine q JOIN millpond_consumer c ON c.id = q.consumer`,
			func(rows *sql.Rows) error {
				var (
					consumer    string
					id, payload []byte
					q           quarantined
				)
				err := rows.Scan(&consumer, &q.row, &id, &q.reason, &payload, &q.seen, &q.status)
				q.id = formatID(id)
				s := subject{consumer, string(payload)}
				st.quarantine[s] = append(st.quarantine[s], q)
				return err
			},
		},
		{
			`SELECT consumer, sold FROM stock`,
			func(rows *sql.Rows) error {
				var (
					consumer string
					sold     int
				)
				err := rows.Scan(&consumer, &sold)
				st.sold[consumer] += sold
				return err
			},
		},
	} {
		if err := query(ctx, s.admin, read.query, read.scan); err != nil {
			return nil, fmt.Errorf("%s: %w", read.query, err)
		}
	}
	if err := st.readOutputs(ctx, s.system); err != nil {
		return nil, err
	}
	return st, st.readCommitTimes(ctx, s.system)
}

func (st *state) readCommitTimes(ctx context.Context, s *system) error {
	if !s.commitTimes {
		return nil
	}
	return query(ctx, s.admin, `SELECT c.handler, `+s.dialect.ownID("i")+`, pg_xact_commit_timestamp(i.xmin)
FROM millpond_inbox i JOIN millpond_consumer c ON c.id = i.consumer`, func(rows *sql.Rows) error {
		var (
			consumer string
			id       []byte
			at       time.Time
		)
		err := rows.Scan(&consumer, &id, &at)
		k := key{consumer, formatID(id)}
		r := st.inbox[k]
		r.committed = at
		st.inbox[k] = r
		return err
	})
}

func query(ctx context.Context, db *sql.DB, text string, scan func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// settled implements observer.
func (s sqlTables) settled(ctx context.Context, e *entry) (bool, error) {
	const text = `SELECT count(*) FROM millpond_consumer c WHERE c.handler = $1 AND (
EXISTS (SELECT 1 FROM millpond_inbox i LEFT JOIN millpond_failure f ON f.consumer = i.consumer AND f.message_id = i.message_id
 WHERE i.consumer = c.id AND i.message_id = $2 AND (i.status <> 3 OR f.placement = 1))
OR EXISTS (SELECT 1 FROM millpond_quarantine q WHERE q.consumer = c.id AND q.payload = $3))`
	var n int
	err := s.admin.QueryRowContext(ctx, s.dialect.placeholder(text), e.consumer, []byte("u:"+e.ID), []byte(e.Payload)).Scan(&n)
	return n > 0, err
}

// open implements observer.
func (s sqlTables) open(ctx context.Context, operated bool) (n int, err error) {
	const (
		pending = `SELECT (SELECT count(*) FROM millpond_failure WHERE status = 3 AND content <> 0)`
		decided = ` + (SELECT count(*) FROM millpond_failure WHERE status = 4 AND class IN ('permanent', 'outputs'))
+ (SELECT count(*) FROM millpond_quarantine WHERE status = 'held' AND reason IN ('key_too_long', 'no_key'))`
	)
	text := pending
	if operated {
		text += decided
	}
	err = s.admin.QueryRowContext(ctx, text).Scan(&n)
	return n, err
}
