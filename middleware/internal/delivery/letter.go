package delivery

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// Errors about copies of dead letters.
var (
	// ErrRefusedForGood: Letters will never accept the message.
	ErrRefusedForGood = errors.New("middleware: refused for good")

	errNoCopy   = errors.New("middleware: cannot publish the copy of a dead letter")
	errUncopied = errors.New("middleware: the message has failed for good, and its copy is not published yet")
)

// copyLetter publishes the message as it arrived, once for this delivery.
func (d *Delivery) copyLetter(f *stores.Failure) error {
	if d.core.Letters == nil || d.refused.copied {
		return nil
	}
	if why := d.refused.noCopy; why != nil {
		d.withoutCopy(f, why)
		return nil
	}
	r := d.arrival.Retry
	if r.unreadable() {
		d.unreadableCopy(f, r)
		return nil
	}
	err := d.core.Letters.Publish(d.arrival.Contexts.Detached, Letter{
		Message: d.message(), Consumer: d.arrival.Claim.Key.Consumer, Topic: d.arrival.Origin.Topic,
		Class: f.Class, Error: f.Error, Attempts: f.Attempts,
	})
	switch {
	case err == nil:
		d.refused.copied = true
	case refusedForGood(err):
		d.withoutCopy(f, err)
	case d.refused.late == nil:
		return fmt.Errorf("%w: %w", errNoCopy, err)
	case r != nil && d.row.state.Age < d.arrival.Policy.Age:
		d.parkUncopied(f, err)
	case d.brokerHasIt() && (d.stopping() || f.Content.State != stores.ContentKept):
		d.keepLater(f, err)
	default: // its row has the whole message
		d.withoutCopy(f, err)
	}
	return nil
}

// withoutCopy stops trying to copy a dead letter that the publisher refuses.
func (d *Delivery) withoutCopy(f *stores.Failure, why error) {
	if d.refused.noCopy == nil {
		d.refused.noCopy = why
		d.complain("a dead letter has no copy", why)
	}
	f.Error = text.Note(f.Error, "no copy", why)
}

// copyLate stops waiting for a copy. It reports false for any other error, and for a retry worker
// that stops, because another one goes on.
func (d *Delivery) copyLate(why error) bool {
	if !errors.Is(why, errNoCopy) || d.arrival.Retry != nil && d.stopping() {
		return false
	}
	d.refused.late = why
	return true
}

// waitedEnough reports whether a retry worker has waited long enough for a copy: other messages
// need its place.
func (d *Delivery) waitedEnough(why error) bool {
	const enough = 20 * time.Second
	return d.arrival.Retry != nil && errors.Is(why, errNoCopy) && d.turn.Held() > enough
}

// A parked message whose last attempt failed, and whose copy cannot be published now, is parked
// again, under a class that says so. When it is due, the retry worker publishes the copy without
// running the handler. The row keeps the attempt's error and cause.

// uncopied prefixes the class of such a message's last failure.
const uncopied = "uncopied: "

// failureClass returns the class without that prefix, which no error of a program can have.
func failureClass(class stores.Class) stores.Class {
	for strings.HasPrefix(string(class), uncopied) {
		class = class[len(uncopied):]
	}
	return class
}

// uncopied reports whether the message only waits for its copy. It runs again once an operator has
// given it a new budget.
func (r *Retry) uncopied() bool {
	if r == nil {
		return false
	}
	s := r.Row.State
	return strings.HasPrefix(string(s.Class), uncopied) && s.Attempts+s.Uncounted > 0 && !s.Presumed
}

// parkUncopied parks a message that has failed for good, to publish its copy later.
func (d *Delivery) parkUncopied(f *stores.Failure, why error) {
	f.Status, f.Placement, f.DueIn = stores.StatusPending, stores.PlacementParked, d.arrival.Policy.Pause(f.Attempts+f.Uncounted)
	f.Class = uncopied + f.Class
	d.complain("a dead letter has no copy yet", why)
}

// copyAlone returns the recorded failure of a message that only waits for its copy, and copies it.
func (d *Delivery) copyAlone() (*stores.Failure, error) {
	row := &d.arrival.Retry.Row
	f := d.newFailure(failureClass(row.State.Class), row.LastError)
	f.Cause = row.Cause
	f.Status, f.Placement = stores.StatusFailed, stores.PlacementParked
	return f, d.copyLetter(f)
}

// unreadableCopy decides about the copy of a message that cannot be restored. It is copied later
// only if just its copy is missing, or its last attempt ended the process, if the error may pass,
// and if its age allows.
func (d *Delivery) unreadableCopy(f *stores.Failure, r *Retry) {
	why := r.Unreadable
	if (r.uncopied() || r.Spent) && !refusedForGood(why) && d.row.state.Age < d.arrival.Policy.Age {
		d.parkUncopied(f, why)
		return
	}
	d.withoutCopy(f, why)
}
