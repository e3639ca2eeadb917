package middleware

import (
	"errors"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// A parked message whose last attempt has failed, and whose copy cannot be published now, is
// parked again, under a class that says so: when it is due the retry worker publishes the
// copy, and runs nothing. Its row keeps the error and the cause of the attempt.

// uncopied begins the class of such a message, before that of its last failure.
const uncopied = "uncopied: "

// copied is the class without that. No error of a program can have it.
func copied(class stores.Class) stores.Class {
	for strings.HasPrefix(string(class), uncopied) {
		class = class[len(uncopied):]
	}
	return class
}

var errUncopied = errors.New("middleware: the message has failed before, and has had no copy since")

// uncopied reports whether the message waits for its copy alone. It runs again once an
// operator has given it a new budget.
func (r *retryRun) uncopied() bool {
	return r != nil && strings.HasPrefix(string(r.State.Class), uncopied) && r.State.Attempts+r.State.Uncounted > 0 && !r.State.Presumed
}

// parkUncopied parks a message that has failed for good, to publish its copy later.
func (d *delivery) parkUncopied(f *stores.Failure, why error) {
	f.Status, f.Placement, f.DueIn = stores.StatusPending, stores.PlacementParked, d.policy.pause(f.Attempts+f.Uncounted)
	f.Class = uncopied + f.Class
	d.complain("a dead letter has no copy yet", why)
}

// copyAlone is the failure of a message that waits for its copy alone, as it was recorded.
func (d *delivery) copyAlone() (*stores.Failure, error) {
	f := d.newFailure(copied(d.retry.State.Class), d.retry.LastError)
	f.Cause = d.retry.Cause
	f.Status, f.Placement = stores.StatusFailed, stores.PlacementParked
	switch why := d.retry.unreadable; {
	case why == nil:
		return f, d.copyDeadLetter(f)
	case d.state.Age < d.policy.MaxAge:
		d.parkUncopied(f, why)
	default:
		d.noCopy(f, why)
	}
	return f, nil
}
