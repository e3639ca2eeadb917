package crash

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

// violation is an invariant that does not hold, for one key.
type violation struct {
	invariant string // I1 … as in the design
	key       key
	text      string
}

func (v violation) String() string {
	return fmt.Sprintf("%s %s/%s: %s", v.invariant, v.key.consumer, v.key.id, v.text)
}

// audit holds what is committed against the ledger.
type audit struct {
	*state

	operated bool           // there were operators
	leasing  leases         // handlers were under these
	recorded map[key]record // what workers say they have recorded
	entries  []*entry
	found    []violation
	lost     map[subject]bool // acked or given up, and neither completed nor kept
	doubled  map[key]bool     // with an effect that is committed twice
}

// check is called when everything has come to rest.
func check(tr *trial, st *state, history []event) *audit {
	a := &audit{state: st, operated: tr.Operated, leasing: tr.Leases, recorded: recordedIn(tr.ledger.lost.since(history)), entries: tr.ledger.all(), lost: make(map[subject]bool), doubled: make(map[key]bool)}
	known := make(map[key]bool)
	for _, e := range a.entries {
		known[e.key()] = true
		a.noLoss(e)
		a.ackAfterCommit(e)
		a.rightFate(e)
		a.rightFailure(e)
	}
	if tr.OrderKeys {
		a.inOrder()
	}
	for k := range known {
		a.effectOnce(k)
		a.isolation(k)
		a.whole(k)
		a.attempts(k)
		a.dueSoon(k)
	}
	maps.Copy(known, a.echoes(tr.ledger.lost, history, known))
	a.nothingElse(known)
	a.counters()
	a.redrives()
	a.facts(history)
	a.notBegun(begunIn(history))
	a.sessions(tr.ledger.lost.outside(history))
	a.copied(history)
	a.leases(tr, history)
	slices.SortFunc(a.found, func(x, y violation) int { return slices.Compare([]byte(x.String()), []byte(y.String())) })
	return a
}

// reportf notes a violation; of a dishonest handler's message it is one of I12 as well.
func (a *audit) reportf(invariant string, k key, format string, args ...any) {
	a.found = append(a.found, violation{invariant, k, fmt.Sprintf(format, args...)})
	if slices.Contains(dishonest, conductOf(k.id)) && invariant != "I12" {
		a.reportf("I12", k, format, args...)
	}
}

func (a *audit) completed(e *entry) bool {
	row, ok := a.inbox[e.key()]
	return ok && e.ID != "" && row.status == stores.StatusCompleted && row.of(e.Payload)
}

// settled reports whether the message failed for good, or was discarded.
func (a *audit) settled(e *entry) bool {
	row, ok := a.inbox[e.key()]
	return ok && e.ID != "" && (row.status == stores.StatusFailed || row.status == stores.StatusDiscarded) && row.of(e.Payload)
}

func (a *audit) kept(e *entry) []quarantined { return a.quarantine[subject{e.consumer, e.Payload}] }

// noLoss is I2, and with it I10: at rest every message is completed, settled or in
// quarantine.
func (a *audit) noLoss(e *entry) {
	if a.completed(e) || a.settled(e) || len(a.kept(e)) > 0 {
		return
	}
	if row, ok := a.inbox[e.key()]; ok && row.status == stores.StatusPending && row.of(e.Payload) {
		return // not lost, but see whole
	}
	if e.drops > 0 {
		a.lost[subject{e.consumer, e.Payload}] = true
		a.reportf("I2", e.key(), "%q was given up by the broker after %d deliveries: it is lost", e.Payload, e.deliveries)
		return
	}
	a.lost[subject{e.consumer, e.Payload}] = true
	if e.acks > 0 {
		a.reportf("I2", e.key(), "%q was acked %d times and is neither completed nor in quarantine: it is lost", e.Payload, e.acks)
		return
	}
	a.reportf("I10", e.key(), "%q was delivered %d times and nacked %d times, and came to no end", e.Payload, e.deliveries, e.nacks)
}

// ackAfterCommit is I3, where the server knows when it has committed. Both clocks are
// this machine's. A message that has failed before may be acked when that is on record.
func (a *audit) ackAfterCommit(e *entry) {
	row := a.inbox[e.key()]
	if a.recorded[e.key()].parked {
		return
	}
	if a.completed(e) && len(a.kept(e)) == 0 && e.acks > 0 && !row.committed.IsZero() && row.committed.After(e.firstAck) {
		a.reportf("I3", e.key(), "%q was acked at %s and committed at %s", e.Payload, e.firstAck, row.committed)
	}
}

// rightFate checks that each message ended the way it must: I6 for conflicts, I5 for
// duplicates, which must not be taken for something else.
func (a *audit) rightFate(e *entry) {
	fate, kept := e.fate(a.operated), a.kept(e)
	for _, q := range kept {
		if q.status != fate.decided {
			a.reportf("I8", e.key(), "%q is %s in quarantine, it should be %s", e.Payload, q.status, fate.decided)
		}
		conflicting := fate.conflict && q.reason == stores.ReasonConflict && !a.completed(e)
		switch {
		case q.reason == fate.reason || conflicting:
		case q.reason == stores.ReasonConflict:
			a.reportf("I6", e.key(), "%q is in quarantine for a conflict with itself, or with nothing", e.Payload)
		default:
			a.reportf("I5", e.key(), "%q is in quarantine for %q (completed: %t)", e.Payload, q.reason, a.completed(e))
		}
	}
	limit := 1
	if e.ID == "" || e.Undecodable || e.conduct() == keyless {
		limit = e.published // without an id, only where it came from tells one from another
	}
	if len(kept) > limit {
		a.reportf("I5", e.key(), "%q is in quarantine %d times", e.Payload, len(kept))
	}
	if fate.reason != "" && a.completed(e) != (fate.decided == stores.QuarantineReleased) {
		a.reportf("I2", e.key(), "%q is in quarantine for %q (completed: %t)", e.Payload, fate.reason, a.completed(e))
	}
	if row, ok := a.inbox[e.key()]; ok && e.ID != "" && fate.conflict && !row.of(e.Payload) && len(kept) == 0 && e.acks > 0 {
		a.reportf("I6", e.key(), "%q was acked, the key is another message's, and it is not in quarantine", e.Payload)
	}
}

// effectOnce is I1: both effects of one run if the key is completed, else none. The
// run must have been that of the message that the row was made for: I6.
func (a *audit) effectOnce(k key) {
	row, found := a.inbox[k]
	completed := found && row.status == stores.StatusCompleted
	parts := make(map[int]int)
	for _, e := range a.effects[k] {
		parts[e.part]++
		if parts[e.part] == 2 {
			a.doubled[k] = true
			a.reportf("I1", k, "effect %d is committed twice: %v", e.part, a.effects[k])
		}
		if found && !row.of(e.payload) {
			a.reportf("I6", k, "the effect is of %q, the row of another message", e.payload)
		}
	}
	switch effects := a.effects[k]; {
	case completed && (parts[1] == 0 || parts[2] == 0):
		a.reportf("I1", k, "the key is completed, and of its effects only %v are committed: the rest is lost", effects)
	case completed && effects[0].run != effects[1].run:
		a.reportf("I1", k, "effects of two runs are committed: %v", effects)
	case !completed && len(effects) > 0:
		a.reportf("I1", k, "effects are committed and the key is not completed: %v", effects)
	}
}

// isolation is I11: what one consumer has done, all have.
func (a *audit) isolation(k key) {
	if len(a.effects[k]) > 0 || a.unconfirmed(k) {
		return
	}
	for _, other := range consumers {
		if len(a.effects[key{other, k.id}]) > 0 {
			a.reportf("I11", k, "%s has its effects, %s has not", other, k.consumer)
		}
	}
}

// nothingElse checks that there is nothing that was never published.
func (a *audit) nothingElse(known map[key]bool) {
	for k := range a.inbox {
		if !known[k] {
			a.reportf("I1", k, "it has a row, but was never published")
		}
	}
	for k, effects := range a.effects {
		if !known[k] {
			a.reportf("I1", k, "effects without a message: %v", effects)
		}
	}
}

// counters is I5 and I1 for an effect that is no row: a counter.
func (a *audit) counters() {
	completed := make(map[string]int)
	for k, row := range a.inbox {
		if row.status == stores.StatusCompleted {
			completed[k.consumer]++
		}
	}
	for _, consumer := range consumers {
		if sold := a.sold[consumer]; sold != completed[consumer] {
			a.reportf("I5", key{consumer: consumer}, "%d messages are completed, the counter says %d", completed[consumer], sold)
		}
	}
}
