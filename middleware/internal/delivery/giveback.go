package delivery

import (
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// giveBack gives the delivery back without counting a failure. A message that the handler acked is
// kept instead, even while the service stops, because it will not be redelivered.
func (d *Delivery) giveBack(cause error) next {
	if d.leased() == nil || d.end.Runs == 0 { // under a lease the effect may have happened
		d.uncount(cause)
	}
	if d.arrival.Retry == nil && d.arrival.Handler.Acked() { // if nothing ran, a middleware around the inbox acked it
		early := fmt.Errorf("%w: %w", ErrAckedEarly, cause)
		err := d.tryQuarantine(stores.ReasonAckedEarly, early)
		if d.unkept(err) {
			err = d.tryQuarantine(stores.ReasonAckedEarly, early)
		}
		if err == nil {
			d.settle(cause, d.interrupted())
			return d.done(Quarantined)
		}
		if d.turn.Outlast(); concernsStore(err) && d.waits(err) {
			return next{state: givingBack, cause: cause}
		}
		cause = errors.Join(ErrAckedEarly, cause, err)
	}
	d.end.Back, d.end.Up = GiveBack{After: d.turn.Next()}, d.notNow(cause)
	return d.done(NotNow)
}

// interrupted is the class of an attempt with an unknown end.
func (d *Delivery) interrupted() stores.Class {
	if d.end.Runs == 0 {
		return stores.ClassInterrupted
	}
	return d.confirmed(stores.ClassInterrupted)
}

// notNow returns the router's error for a delivery that is given back without a failure.
func (d *Delivery) notNow(cause error) error {
	return &NotNowError{Cause: cause, Held: d.turn.Held()}
}

// settle ends the row of a message that is kept elsewhere and will not be redelivered.
func (d *Delivery) settle(cause error, class stores.Class) {
	if d.row.state.Version == 0 {
		return
	}
	f := d.newFailure(class, text.Of(cause))
	f.Status, f.Placement = stores.StatusFailed, stores.PlacementRedelivered
	_ = d.write(f)
}
