package crash

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// tenure is the time in which one run had the lease of a message.
type tenure struct {
	token   int64
	granted time.Time
	until   time.Time // it lives at least, if it is not ended
	asked   time.Time // since when the effect may have happened; zero: it has not
	paid    bool      // it has
	known   bool      // the holder has begun to write down that the attempt failed
	steps   time.Time // since when it records a step
	changes time.Time // since when the holder ends it; zero: it does not
}

// leases is I4, and what else is promised to effects outside of the database, by what the
// workers have written down before and after each question.
func (a *audit) leases(tr *trial, history []event) {
	if !tr.Leases.on() {
		return
	}
	byKey := make(map[key][]event)
	for _, e := range history {
		byKey[key{e.Consumer, e.ID}] = append(byKey[key{e.Consumer, e.ID}], e)
	}
	keys := make(map[string]key) // by idempotency key
	for k, events := range byKey {
		slices.SortStableFunc(events, func(x, y event) int { return x.At.Compare(y.At) })
		w := &watch{audit: a, key: k, leases: tr.Leases, limit: tr.HandlerTimeout}
		for _, e := range events {
			w.see(e)
		}
		if other, used := keys[w.asked]; used && w.asked != "" && other != k {
			a.reportf("I4", k, "its idempotency key is that of %v", other)
		}
		keys[w.asked] = k
		if w.completions > 1 {
			a.reportf("I4", k, "%d holders have completed it", w.completions)
		}
	}
	for k, row := range a.inbox {
		if want := row.status == stores.StatusCompleted; (a.outputs[k] == 1) != want || a.outputs[k] > 1 {
			a.reportf("I4", k, "the row is %s, and %d outputs are committed", row.status, a.outputs[k])
		}
	}
}

// watch follows one message through its tenures.
type watch struct {
	*audit
	key    key
	leases leases
	limit  time.Duration // of handlers

	tenures     []*tenure // as they were granted
	asked       string    // the idempotency key
	paid        bool      // by one of them
	stepped     time.Time // when the effect was on record; zero: it is not
	completions int
}

func (w *watch) see(e event) {
	if e.What == saidLeased {
		w.granted(e)
		return
	}
	i := slices.IndexFunc(w.tenures, func(t *tenure) bool { return t.token == e.Lease })
	if i < 0 {
		return
	}
	own, since := w.tenures[i], w.tenures[i+1:]
	switch {
	case e.What == saidRenewed:
		w.renewed(own, e)
	case e.What == saidAsked:
		w.effect(own, e)
		own.asked = e.At
	case e.What == saidPaid:
		own.paid, w.paid = true, true
	case e.What == saidStepped:
		w.stepped = e.At
		w.changed(own.steps, own, since, "recorded a step")
	case e.What == saidSteps:
		own.steps = e.At
	case e.What == saidAt+pointCommitStart, e.What == saidChanges:
		own.changes, own.known = e.At, own.known || e.What == saidChanges && e.Detail != string(stores.ClassUnconfirmed)
	case e.What == saidTakes: // however long the holder stood still after it began to commit
		own.changes = e.At
	case e.What == saidReturned:
		own.known = own.known || knownEnd(e.Detail)
	case e.What == saidChanged:
		w.changed(own.changes, own, since, "recorded its failure")
	case e.What == saidCommit && e.Detail != "" && !e.unknownCommit():
		own.changes = time.Time{}
	case e.What == saidCommit && e.Detail == "":
		w.completions++
		w.changed(own.changes, own, since, "completed it")
		if !own.paid && !(w.paid && stepped(w.key.id)) {
			w.reportf("I4", w.key, "the run with lease %d has completed it, and made no effect", own.token)
		}
	}
}

// since is when a question was asked that the event has answered.
func (e event) since() time.Time {
	nanos, _ := strconv.ParseInt(e.Detail, 10, 64)
	return time.Unix(0, nanos)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// renewed checks that the handler may still run.
func (w *watch) renewed(own *tenure, e event) {
	const busy = time.Second // a machine
	if over := own.asked.Add(w.limit + busy); !own.asked.IsZero() && e.since().After(over) {
		w.reportf("rule 20", w.key, "lease %d was renewed after its handler's deadline", own.token)
	}
	own.until = later(own.until, e.since().Add(w.leases.TTL))
}

// granted checks that the lease before had expired by then, or was given up. A process that
// was stopped writes down late what it was granted.
func (w *watch) granted(e event) {
	i := len(w.tenures)
	for i > 0 && w.tenures[i-1].token > e.Lease {
		i--
	}
	if i > 0 && i == len(w.tenures) {
		if l := w.tenures[i-1]; l.changes.IsZero() && e.At.Before(l.until) {
			w.reportf("I4", w.key, "lease %d was granted %s before lease %d could expire", e.Lease, l.until.Sub(e.At), l.token)
		}
	}
	w.tenures = slices.Insert(w.tenures, i, &tenure{token: e.Lease, granted: e.At, until: e.since().Add(w.leases.TTL)})
}

// effect checks the key of a request, and that a request is not made again silently.
func (w *watch) effect(own *tenure, e event) {
	if w.asked != "" && w.asked != e.Detail {
		w.reportf("I4", w.key, "two attempts had the idempotency keys %s and %s", w.asked, e.Detail)
	}
	w.asked = e.Detail
	if !w.stepped.IsZero() && own.granted.After(w.stepped) && own == w.tenures[len(w.tenures)-1] { // else it was stopped
		w.reportf("I4", w.key, "the run with lease %d makes the effect again, which is on record", own.token)
	}
	for _, before := range w.tenures {
		if w.leases.stops(w.key.consumer) && before.token != own.token && !before.asked.IsZero() && !before.known {
			w.reportf("I4", w.key, "the run with lease %d was followed by that with lease %d: its effect may have happened, and nobody has said that it failed", before.token, own.token)
		}
	}
}

// changed checks that the holder had not lost its lease when it began to change something.
func (w *watch) changed(began time.Time, own *tenure, since []*tenure, what string) {
	if len(since) > 0 && since[0].granted.Before(began) {
		w.reportf("I4", w.key, "the holder of lease %d %s, and lease %d had been granted before it began to", own.token, what, since[0].token)
	}
}

// knownEnd reports whether a handler has said that its attempt failed.
func knownEnd(said string) bool {
	for _, err := range []error{errFlaky, errHopeless, errRival, errInvalid} {
		if strings.Contains(said, err.Error()) {
			return true
		}
	}
	return false
}

// unconfirmed reports whether a message has failed because its effect may have happened, for
// a consumer that wants that.
func (a *audit) unconfirmed(k key) bool {
	return a.leasing.stops(k.consumer) && a.inbox[k].status == stores.StatusFailed && a.failures[k].class == stores.ClassUnconfirmed
}

// readOutputs reads what is committed of what handlers say. Nobody publishes it.
func (st *state) readOutputs(ctx context.Context, s *system) error {
	return query(ctx, s.admin, `SELECT payload FROM millpond_outbox`, func(rows *sql.Rows) error {
		var payload []byte
		err := rows.Scan(&payload)
		consumer, id, _ := strings.Cut(string(payload), " ")
		st.outputs[key{consumer, id}]++
		return err
	})
}

// leaseSummary is the rest of the line of a run.
func (r *result) leaseSummary() string {
	n := make(map[string]int)
	effects := make(map[key]int)
	for _, e := range r.history {
		n[e.What]++
		if e.What == saidPaid {
			effects[key{e.Consumer, e.ID}]++
		}
	}
	again, stopped := 0, 0
	for _, times := range effects {
		again += times - 1
	}
	for k := range r.inbox {
		if r.unconfirmed(k) {
			stopped++
		}
	}
	return fmt.Sprintf("%d leases, %d renewals, %d effects made again with the same key, %d messages unconfirmed", n[saidLeased], n[saidRenewed], again, stopped)
}
