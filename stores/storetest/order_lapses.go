package storetest

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Order keys and ages outlive neither their message nor its failures.

// overdue records a failure that the broker keeps and that should have come again so
// long ago. Times are reckoned with those of the row: no literals means no dialect.
func (b *bench) overdue(store stores.Failures, id string, by time.Duration, changes ...func(*stores.Failure)) (version int64) {
	b.tb.Helper()
	version = b.parks(store, id, "order", append(changes, redelivered, func(f *stores.Failure) { f.Start, f.DueIn = true, by })...)
	b.exec(fmt.Sprintf(`UPDATE millpond_failure SET order_until = order_until - (due_at - last_at) - (due_at - last_at), due_at = last_at - (due_at - last_at)
WHERE number = %d`, b.failure(id).number))
	return version
}

// lostByTheBroker: a message that the broker has dropped would hold up all that come
// after it for ever. One that comes late after all is run like any other.
func lostByTheBroker(b *bench) {
	here, elsewhere := b.open(), b.open()
	lost := b.overdue(here, "lost", 2*time.Hour)
	b.complete(elsewhere, orderedClaim("delivered later", "order"))
	b.parks(here, "parked later", "order")
	r := b.next(elsewhere)
	if string(r.Key.ID) != "parked later" {
		b.tb.Errorf("%s is due, want the one behind a message that is lost", r.Key)
	}
	b.commit(b.take(elsewhere, claimOf(r), r.State.Version))

	version := b.parks(here, "failed later", "order", redelivered)
	b.commit(b.take(elsewhere, orderedClaim("failed later", "order"), version))
	b.commit(b.take(here, orderedClaim("lost", "order"), lost))
	b.paired()

	late := b.overdue(here, "late", time.Minute)
	b.expect(elsewhere, orderedClaim("behind", "order"), stores.Behind) // it may be on its way
	b.commit(b.take(here, orderedClaim("late", "order"), late))

	// For how long is said with each failure.
	impatient := func(f *stores.Failure) { f.OrderWait = 0 }
	late = b.overdue(here, "late and awaited briefly", time.Minute, impatient)
	b.rollback(b.win(elsewhere, orderedClaim("behind", "order")))
	f := failureOf(orderedClaim("late and awaited briefly", "order"))
	redelivered(&f)
	f.Version, f.OrderWait = late, 2*time.Hour
	b.record(here, f)
	b.expect(elsewhere, orderedClaim("behind", "order"), stores.Behind)
}

// retriedWithoutContent: nobody knows whether the broker still has what an operator
// wants to be tried again.
func retriedWithoutContent(b *bench) {
	store := b.open()
	b.parks(store, "not kept", "order", redelivered, settledFor, func(f *stores.Failure) { f.Content = &stores.Content{State: stores.ContentOff} })
	b.parks(store, "kept", "another order", settledFor)
	b.change(store, stores.VerbRetry, stores.Filter{}, 2)
	b.complete(store, orderedClaim("next", "order"))
	b.expect(store, orderedClaim("next of another", "another order"), stores.Behind)
	b.complete(store, orderedClaim("not kept", "order"))
	b.paired()
}

// ageBegins: the age that bounds a message's attempts is that of its first failure, not
// of its wait behind others.
func ageBegins(b *bench) {
	store := b.open()
	claim := claimFor("waiting", "waiting")
	grows := func() {
		if !poll(b.ctx, patience, func() bool { return b.look(store, claim, stores.Parked).Failure.Age >= 20*time.Millisecond }) {
			b.tb.Fatalf("the message does not grow older")
		}
	}
	f := failureOf(claim)
	f.Class, f.Attempts = stores.ClassOrder, 0
	for attempts, want := range []string{"", "begins", "goes on"} {
		f.Attempts = attempts
		f.Version = b.record(store, f)
		f.Content, f.Class = nil, stores.ClassTransient
		var begins bool
		b.query("SELECT budget_at = last_at AND budget_at > first_at FROM millpond_failure", func(rows *sql.Rows) error { return rows.Scan(&begins) })
		if attempts > 0 && begins != (want == "begins") {
			b.tb.Errorf("with failure %d of a message that had waited its age begins anew: %t; it %s", attempts, begins, want)
		}
		grows()
	}
}
