package broker

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// audit holds what is committed against the ledger.
type audit struct {
	rows    map[string]stores.Status
	effects map[string][]effect
	sold    int

	quarantined map[string]bool

	completed, failed int
	lost, doubled     []string // ids
	dropped           int64    // messages that the broker has put aside
	stuck             bool
	found             []violation
}

type effect struct {
	part int
	run  string
}

// violation is what does not hold, of a message or, without an id, of the whole.
type violation struct{ id, text string }

func (a *audit) reportf(id, format string, args ...any) {
	a.found = append(a.found, violation{id, fmt.Sprintf(format, args...)})
}

// check is called when all workers have left.
func (tr *trial) check(t *testing.T) *audit {
	t.Helper()
	a := &audit{rows: make(map[string]stores.Status), effects: make(map[string][]effect), quarantined: make(map[string]bool)}
	a.read(t, tr.database.admin)
	for _, id := range slices.Sorted(maps.Keys(tr.ledger.published)) {
		a.message(id)
	}
	for id := range a.rows {
		if tr.ledger.published[id] == 0 {
			a.reportf(id, "it has a row, but was never published")
		}
	}
	if a.sold != a.completed {
		a.reportf("", "%d messages are completed, the counter says %d", a.completed, a.sold)
	}
	a.atRest(t, tr)
	return a
}

func (a *audit) read(t *testing.T, db *sql.DB) {
	t.Helper()
	each := func(query string, scan func(*sql.Rows) error) {
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	each("SELECT message_id, status FROM millpond_inbox", func(rows *sql.Rows) error {
		var (
			id     []byte
			status stores.Status
		)
		err := rows.Scan(&id, &status)
		a.rows[strings.TrimPrefix(keys.Format(id), "u:")] = status
		return err
	})
	each("SELECT id, part, run FROM effect", func(rows *sql.Rows) error {
		var (
			id string
			e  effect
		)
		err := rows.Scan(&id, &e.part, &e.run)
		a.effects[id] = append(a.effects[id], e)
		return err
	})
	each("SELECT sum(sold) FROM stock", func(rows *sql.Rows) error { return rows.Scan(&a.sold) })
	each("SELECT payload, reason FROM millpond_quarantine", func(rows *sql.Rows) error {
		var (
			payload []byte
			reason  stores.Reason
		)
		err := rows.Scan(&payload, &reason)
		id := strings.TrimPrefix(string(payload), "order ")
		a.quarantined[id] = true
		if conductOf(id) != misread || reason != stores.ReasonUndecodable {
			a.reportf(id, "it is in quarantine as %s", reason)
		}
		return err
	})
}

// message checks that one message has had its effects once, or none if it cannot have
// any, and is not lost.
func (a *audit) message(id string) {
	status, found := a.rows[id]
	effects := a.effects[id]
	want := stores.StatusCompleted
	if conductOf(id) == hopeless {
		want = stores.StatusFailed
	}
	switch {
	case conductOf(id) == misread && !found && a.quarantined[id]:
	case conductOf(id) == misread:
		a.reportf(id, "it cannot be read: it has a row: %t, and is in quarantine: %t", found, a.quarantined[id])
	case !found:
		a.lost = append(a.lost, id)
		a.reportf(id, "it was published, and has no row: it is lost")
	case status == stores.StatusPending: // for a redelivery that will never come
		a.lost = append(a.lost, id)
		a.reportf(id, "it is pending, and neither the broker nor a retry worker has it: it is lost")
	case status != want:
		a.reportf(id, "it is %s, and should be %s", status, want)
	}
	switch status {
	case stores.StatusCompleted:
		a.completed++
	case stores.StatusFailed:
		a.failed++
	default:
	}
	parts := make(map[int]int)
	for _, e := range effects {
		parts[e.part]++
	}
	switch {
	case parts[1] > 1 || parts[2] > 1:
		a.doubled = append(a.doubled, id)
		a.reportf(id, "its effects are doubled: %v", effects)
	case status == stores.StatusCompleted && (len(effects) != 2 || effects[0].run != effects[1].run):
		a.reportf(id, "it is completed, and its effects are not those of one run: %v", effects)
	case status != stores.StatusCompleted && len(effects) > 0:
		a.reportf(id, "it is not completed, and has effects: %v", effects)
	}
}

// atRest checks that nobody has anything open, and that no acks were lost with those who
// left.
func (a *audit) atRest(t *testing.T, tr *trial) {
	t.Helper()
	if left, err := answer(t, tr.server.left); err != nil || left != 0 && !kinds[tr.Kind].returns {
		a.reportf("", "%d messages are not settled: %v", left, err)
	}
	var err error
	if a.dropped, err = answer(t, tr.server.dropped); err != nil || a.dropped != 0 && !tr.outlasted {
		a.reportf("", "the broker has put %d messages aside: %v", a.dropped, err)
	}
	if n := tr.connected(t); n > 0 {
		a.reportf("", "%d consumers have not left", n)
	}
	if tr.database.name != "postgres" {
		return
	}
	const open = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL`
	var n int
	for deadline := time.Now().Add(unhurried); time.Now().Before(deadline); { // the server may still be noticing that they are gone
		if err := tr.database.admin.QueryRowContext(t.Context(), open).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		pause.Sleep(t.Context(), 50*time.Millisecond)
	}
	a.reportf("", "%d transactions are open, and nobody is there", n)
}

// unhurried is for how long a server may be busy with other things.
const unhurried = 20 * time.Second

// answer asks a server until it answers.
func answer[N any](t *testing.T, ask func(context.Context) (N, error)) (n N, err error) {
	t.Helper()
	for deadline := time.Now().Add(unhurried); ; pause.Sleep(t.Context(), 50*time.Millisecond) {
		if n, err = ask(t.Context()); err == nil || time.Now().After(deadline) {
			return n, err
		}
	}
}

// connected is how many consumers the broker has, those aside that were killed and that it
// still takes for living.
func (tr *trial) connected(t *testing.T) int {
	t.Helper()
	n := 0
	for deadline := time.Now().Add(2*kinds[tr.Kind].absence + unhurried); time.Now().Before(deadline); {
		var err error
		if n, err = answer(t, tr.server.connected); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		pause.Sleep(t.Context(), 50*time.Millisecond)
	}
	return n
}

// facts checks that a handler reads of a message, on each attempt, what one of its
// deliveries has said.
func (a *audit) facts(history []event) {
	type fact struct{ id, text string }
	delivered := make(map[fact]bool)
	for _, e := range history {
		if text, ok := strings.CutPrefix(e.What, saidDelivered); ok {
			delivered[fact{e.ID, text}] = true
		}
	}
	for _, e := range history {
		if text, ok := strings.CutPrefix(e.What, saidRead); ok && !delivered[fact{e.ID, text}] {
			a.reportf(e.ID, "an attempt has read %s, and it was never delivered as that", text)
		}
	}
}

// must fails the test for what does not hold, and shows some of it in full.
func (r *result) must(t *testing.T) {
	t.Helper()
	if len(r.found) == 0 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d violations, seed %d\n", len(r.found), r.trial.seed)
	const listed, shown = 20, 4
	for _, v := range r.found[:min(len(r.found), listed)] {
		fmt.Fprintf(&b, "  %s: %s\n", v.id, v.text)
	}
	for _, v := range r.found[:min(len(r.found), shown)] {
		fmt.Fprintf(&b, "%s, published %d times\n%s", v.id, r.trial.ledger.published[v.id], tell(r.history, v.id))
	}
	for _, e := range r.history {
		if strings.Contains(e.What, "the time is over") {
			fmt.Fprintln(&b, e)
		}
	}
	t.Error(b.String())
	if r.stuck {
		for worker := range r.trial.logs {
			log := r.trial.log(worker)
			t.Logf("worker %d:\n%s", worker, head(log[max(strings.Index(log, "SIGQUIT"), 0):], 20000))
		}
	}
}

// summary is the line of a run.
func (r *result) summary() string {
	points := make(map[string]int)
	deliveries, retries := 0, 0
	for _, e := range r.history {
		if strings.HasPrefix(e.What, "delivery ") && !strings.HasPrefix(e.What, "delivery ended") {
			deliveries++
			if strings.HasSuffix(e.What, "retry true") {
				retries++
			}
		}
		if _, fault, ok := strings.Cut(e.What, " SIGKILL "); ok && fault != "" {
			points[fault]++
		}
	}
	ids, messages := r.trial.ledger.count()
	return fmt.Sprintf("%s, %s, seed %d, %s%d in flight: SIGKILL %d (at %v), SIGSTOP %d, SIGTERM %d, broker killed %d; "+
		"%d messages published with %d ids, %d deliveries, %d of them retries; %d completed, %d failed; lost %d, doubled %d; %s",
		r.trial.Kind, r.trial.database.name, r.trial.seed, r.trial.variant(), r.trial.InFlight,
		r.Kills[fleet.SIGKILL], points, r.Kills[fleet.SIGSTOP], r.Kills[fleet.SIGTERM], r.trial.broken.Load()/2,
		messages, ids, deliveries, retries, r.completed, r.failed, len(r.lost), len(r.doubled), r.Duration.Round(100*time.Millisecond))
}
