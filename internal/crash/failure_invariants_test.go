package crash

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// record is what workers say about the failures of a key.
type record struct {
	counted int  // attempts that were recorded as failed, and count
	most    int  // what the row should say at least
	parked  bool // it may have been acked without being completed
}

func recordedIn(history []event) map[key]record {
	recorded := make(map[key]record)
	for _, e := range history {
		k := key{e.Consumer, e.ID}
		r := recorded[k]
		switch e.What {
		case saidRecorded:
			var (
				class    stores.Class
				attempts int
			)
			_, _ = fmt.Sscan(e.Detail, &class, &attempts)
			if class != stores.ClassInterrupted && class != stores.ClassUnknown && class != stores.ClassOrder {
				r.counted++
			}
			r.most = max(r.most, attempts)
		case saidEnd:
			for _, result := range []string{"parked", "failed", "final", "given_back", "panicked"} {
				r.parked = r.parked || strings.HasPrefix(e.Detail, result)
			}
		}
		recorded[k] = r
	}
	return recorded
}

// otherEnd reports whether a message whose handler always fails may have ended with that
// class: its worker was killed in the last attempt, or an operator discarded it after one
// that could not be recorded before its worker had to stop.
func (*audit) otherEnd(status stores.Status, class stores.Class) bool {
	return class == stores.ClassCrash || status == stores.StatusDiscarded && class == stores.ClassInterrupted
}

// keeps reports whether what is kept of a message is what must be.
func (f failure) keeps(e *entry) bool {
	if e.conduct() == unkept {
		return f.content == stores.ContentRefused && f.payload == ""
	}
	return f.content == stores.ContentKept && f.payload == e.Payload
}

// rightFailure checks that what has failed for good had to, and in which way.
func (a *audit) rightFailure(e *entry) {
	fate := e.fate(a.operated)
	settled := a.settled(e)
	if !settled {
		if fate.status != nil && a.completed(e) {
			a.reportf("I2", e.key(), "%q is completed, it should be %v", e.Payload, fate.status)
		}
		return
	}
	row, failure := a.inbox[e.key()], a.failures[e.key()]
	switch {
	case row.status == stores.StatusFailed && !failure.keeps(e):
		a.reportf("I2", e.key(), "%q has failed, and what is kept of it is %s, %q", e.Payload, failure.content, failure.payload)
	case a.unconfirmed(e.key()):
	case !slices.Contains(fate.status, row.status):
		a.reportf("I10", e.key(), "%q is %s (%s, %d attempts), it should be %v", e.Payload, row.status, failure.class, failure.attempts, fate.status)
	case failure.class != fate.class && !(fate.class == stores.ClassTransient && a.otherEnd(row.status, failure.class)):
		a.reportf("I10", e.key(), "%q has failed with the class %s, want %s", e.Payload, failure.class, fate.class)
	case failure.presumed && row.status == stores.StatusFailed:
		a.reportf("I10", e.key(), "%q has failed, and an attempt is presumed to run", e.Payload)
	}
}

// whole checks that the row of the inbox and that of the failure say the same, and that
// at rest nothing is between.
func (a *audit) whole(k key) {
	row, inInbox := a.inbox[k]
	failure, hasFailed := a.failures[k]
	switch {
	case hasFailed && !inInbox:
		a.reportf("I2", k, "there is a failure without a row in the inbox: %+v", failure)
	case hasFailed && row.status != failure.status:
		a.reportf("I2", k, "the row is %s, its failure %s", row.status, failure.status)
	case !hasFailed && inInbox && row.status != stores.StatusCompleted:
		a.reportf("I2", k, "the row is %s, and nothing is known of a failure", row.status)
	case inInbox && (row.status == stores.StatusPending || row.status == stores.StatusProcessing):
		a.reportf("I10", k, "the row is left %s", row.status)
	}
}

// attempts is rule 6: what was recorded is not undone.
func (a *audit) attempts(k key) {
	failure, ok := a.failures[k]
	recorded := a.recorded[k]
	if ok && failure.redrives == 0 && failure.attempts < max(recorded.counted, recorded.most) {
		a.reportf("rule 6", k, "%d failed attempts were recorded, the last as number %d, and the row has %d", recorded.counted, recorded.most, failure.attempts)
	}
}

// dueSoon is rule 12: no failure waits longer than its backoff or its reservation, by the
// clock of the database.
func (a *audit) dueSoon(k key) {
	if f, ok := a.failures[k]; ok && f.status == stores.StatusPending && f.dueIn > time.Minute {
		a.reportf("rule 12", k, "it is due in %s", f.dueIn)
	}
}

// redrives is I8: each decision is carried out once, and written down.
func (a *audit) redrives() {
	for k, f := range a.failures {
		if n := a.audits[audited{stores.VerbRetry, f.number}]; n != f.redrives {
			a.reportf("I8", k, "the row was retried %d times, the audit says %d", f.redrives, n)
		}
		if n := a.audits[audited{stores.VerbDiscard, f.number}]; (n > 0) != (f.status == stores.StatusDiscarded) || n > 1 && f.redrives == 0 {
			a.reportf("I8", k, "the row is %s, the audit has %d discards", f.status, n)
		}
	}
	for s, kept := range a.quarantine {
		for _, q := range kept {
			for verb, status := range map[stores.Verb]stores.QuarantineStatus{
				stores.VerbRelease: stores.QuarantineReleased, stores.VerbReject: stores.QuarantineRejected,
			} {
				if n := a.audits[audited{verb, q.row}]; (n == 1) != (q.status == status) || n > 1 {
					a.reportf("I8", key{s.consumer, q.id}, "it is %s in quarantine, the audit has %d of %s", q.status, n, verb)
				}
			}
		}
	}
}

// inOrder checks that the effects of one order key were written in the order of
// publishing, whatever failed in between.
func (a *audit) inOrder() {
	type line struct{ consumer, key string }
	last := make(map[line]effect)
	for _, e := range a.entries {
		if e.Key == "" || !a.completed(e) || len(a.effects[e.key()]) == 0 {
			continue
		}
		l, now := line{e.consumer, e.Key}, a.effects[e.key()][0]
		if before := last[l]; now.seq < before.seq {
			a.reportf("order", e.key(), "%q took effect before %q, which was published before it", e.Payload, before.payload)
		}
		last[l] = now
	}
}
