package delivery

import (
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Repeats follows the share of duplicates among a consumer's messages. Redeliveries come in bursts,
// also from brokers that do not flag them. A claim finds a duplicate in two round trips and a
// transaction, a look in one round trip. So while most messages are duplicates, deliveries look
// first. The zero value is ready to use. It is safe for concurrent use.
type Repeats struct {
	share atomic.Int32 // of duplicates, below allRepeats: a moving average
}

const (
	allRepeats  = 1 << 10
	manyRepeats = allRepeats * 3 / 4
	inertia     = 8 // a message changes the share by an eighth of the difference
)

func (r *Repeats) many() bool { return r.share.Load() >= manyRepeats }

func (r *Repeats) note(o stores.Outcome) {
	share := r.share.Load()
	next := share - share/inertia
	if o == stores.Duplicate {
		next = share + (allRepeats-share)/inertia
	}
	if next != share {
		r.share.Store(next) // of several at a time one counts, which is as good
	}
}

// repeated looks a message up that is probably a duplicate. It reports true, with the next state,
// unless the message must be claimed.
func (d *Delivery) repeated() (next, bool) {
	if d.row.take != 0 || !d.arrival.Consumer.Repeats().many() {
		return next{}, false
	}
	v, n, failed := d.lookUp()
	if failed {
		return n, true
	}
	if v.Outcome != stores.Duplicate {
		return next{}, false // what the claim answers counts
	}
	d.arrival.Consumer.Repeats().note(v.Outcome)
	return d.act(v), true
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
