package delivery

import (
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Repeats counts the duplicates that the claims of a consumer have found in a row. Redeliveries
// come in bursts, also from brokers that do not flag them. A claim finds a duplicate in two round
// trips and a transaction, a look in one round trip. So after some duplicates in a row deliveries
// look first, until one is new. The zero value is ready to use. It is safe for concurrent use.
type Repeats struct{ inARow atomic.Int32 }

// manyRepeats duplicates in a row are the beginning of a burst.
const manyRepeats = 8

func (r *Repeats) many() bool { return r.inARow.Load() >= manyRepeats }

func (r *Repeats) note(o stores.Outcome) {
	switch {
	case o != stores.Duplicate:
		if r.inARow.Load() != 0 {
			r.inARow.Store(0)
		}
	case !r.many():
		r.inARow.Add(1)
	}
}

// repeated looks a message up that may be one more of a burst of duplicates. It reports true, with
// the next state, unless the message must be claimed.
func (d *Delivery) repeated() (next, bool) {
	if d.row.take != 0 || !d.arrival.Consumer.Repeats().many() {
		return next{}, false
	}
	v, n, failed := d.lookUp()
	if failed {
		return n, true
	}
	d.arrival.Consumer.Repeats().note(v.Outcome)
	if v.Outcome == stores.Duplicate {
		return d.act(v), true
	}
	return next{}, false
}

// lookUp asks for the message's row. It reports true, with the next state, if there is no answer
// that counts.
func (d *Delivery) lookUp() (v stores.Verdict, n next, failed bool) {
	asked := time.Now()
	v, err := d.ask()
	if err != nil {
		return v, heldFor(d.unanswered(err)), true
	}
	d.turn.Answered()
	if d.core.Completed.Answered(v.Server, asked) {
		return v, d.registerAgain(), true
	}
	return v, next{}, false
}
