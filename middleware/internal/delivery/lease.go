package delivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/stores"
)

// Under a lease a delivery takes a suspect's path: it looks, and counts its attempt before it
// begins. The record of the start is the lease.

var (
	errMayHaveHappened = errors.New("middleware: the outcome of the previous attempt is unknown: its effect may have happened, and AfterCrash is stop")
	errKeyForgotten    = errors.New("middleware: the effect may have happened, and its idempotency key may be too old for the receiver to know")
	errUncompleted     = errors.New("middleware: the effect has happened, and could not be completed")
)

// leased returns the execution if it is under a lease, and otherwise nil.
func (d *Delivery) leased() execute.Leased {
	l, _ := d.execution.(execute.Leased)
	return l
}

func (d *Delivery) heldLease(version int64) stores.HeldLease {
	return stores.HeldLease{Key: d.arrival.Claim.Key, Version: version, Holder: d.row.holder}
}

// takesOver reports whether the next change of the row takes over an expired lease. Its holder may
// be renewing it right now.
func (d *Delivery) takesOver() bool {
	return d.leased() != nil && d.arrival.Retry == nil && d.row.counted == 0 && d.row.state.Presumed
}

// stillHolds reports whether this delivery may still hold the lease. A record that was refused has
// then met a lock only, and is tried again: another run would repeat the effect.
func (d *Delivery) stillHolds() bool {
	return d.leased() != nil && d.end.Runs > 0 && d.row.counted != 0 && d.stillCounted()
}

// startLease records the start of an attempt. The record is its lease.
func (d *Delivery) startLease(f *stores.Failure) error {
	l := d.leased()
	if d.row.started == (start{}) { // otherwise the holder stays, because that start may still be written
		d.row.holder = l.Holder()
	}
	f.Holder, f.DueIn = d.row.holder, l.Terms().TTL
	asked, first, fresh := time.Now(), f.Version == 0, d.row.state.Attempts+d.row.state.Uncounted == 0
	if err := d.write(f); err != nil {
		return err
	}
	if fresh { // so far the message has only waited
		d.row.state.Age, d.row.read = 0, asked
	}
	l.Holds(d.heldLease(d.row.state.Version), asked, first)
	return nil
}

// startAgain is startLease for an attempt that is already counted but has not begun.
func (d *Delivery) startAgain() error {
	f := d.newFailure(d.row.state.Class, errCrashed.Error())
	f.Attempts += d.row.lent
	f.Placement, f.Start = stores.PlacementParked, true
	if d.arrival.Retry == nil {
		f.Placement = stores.PlacementRedelivered
		d.addOrigin(f)
	}
	switch err := d.startLease(f); {
	case errors.Is(err, stores.ErrChanged):
		return ErrInFlight
	case err != nil:
		d.row.started = startOf(f) // if it is written, then with this holder
		return err
	}
	d.row.take = d.row.state.Version
	return nil
}

// unconfirmed returns why a message must not run again, because its effect may have happened, or
// nil.
func (d *Delivery) unconfirmed() error {
	l, s := d.leased(), &d.row.state
	if l == nil || s.Version == 0 || s.Attempts+s.Uncounted == 0 {
		return nil
	}
	presumed := s.Presumed
	if d.row.counted != 0 {
		presumed = d.arrival.Retry.presumed
	}
	if l.Terms().Stop && presumed {
		return errMayHaveHappened
	}
	return d.forgotten()
}

// forgotten returns why it is too late for another attempt, or nil. A delivery that had to wait
// checks again before it runs.
func (d *Delivery) forgotten() error {
	l, s := d.leased(), &d.row.state
	if l == nil {
		return nil
	}
	made := s.Attempts + s.Uncounted
	if d.row.counted != 0 && d.end.Runs == 0 { // this attempt, which has not begun, does not count
		made--
	}
	limit, age := l.Terms().KeyLifetime, s.Age+time.Since(d.row.read)
	if made == 0 || limit <= 0 || age+d.core.Times.Handler <= limit {
		return nil
	}
	return fmt.Errorf("%w: the first attempt was %s ago, the handler may take %s, and KeyLifetime is %s",
		errKeyForgotten, age.Round(time.Second), d.core.Times.Handler, limit)
}

// confirmed returns the class of a failed attempt under a lease. If its effect may have happened
// and the configuration says stop, the class is unconfirmed.
func (d *Delivery) confirmed(class stores.Class) stores.Class {
	l := d.leased()
	if l == nil || !l.Terms().Stop {
		return class
	}
	switch class {
	case stores.ClassTimeout, stores.ClassPanic, stores.ClassConduct, stores.ClassCrash, stores.ClassInterrupted, stores.ClassUnknown:
		return stores.ClassUnconfirmed
	default:
		return class
	}
}

// uncompleted stops trying to complete a message whose effect has happened.
func (d *Delivery) uncompleted(cause error) next {
	class := stores.ClassInterrupted
	if errors.Is(cause, stores.ErrCommitUnknown) {
		class = stores.ClassUnknown
	}
	return d.fail(fmt.Errorf("%w: %w", errUncompleted, cause), d.confirmed(class))
}
