package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// A message can end the process that runs it, and then nobody is left to count. So the
// attempt of a delivery that may not be the first is counted before it begins. A first
// delivery, which is nearly all of them, pays nothing for it.

var errCrashed = errors.New("middleware: the process ended while the handler ran")

// countFirst looks at the message's row and counts the attempt that is about to begin.
// If it has an answer already it says so.
func (d *delivery) countFirst() (answer bool, reason error, settled bool, err error) {
	if d.retry == nil {
		verdict, err := d.look()
		if err != nil {
			return true, d.unanswered(err), false, nil
		}
		d.answered()
		if !d.mayBegin(verdict) {
			reason, settled, err := d.act(verdict)
			return true, reason, settled, err
		}
	}
	d.claim.Take = d.state.Version
	if d.counted != 0 { // in an earlier turn of this delivery
		if d.mayCrash && !d.goAlone() {
			return true, errAlone, false, nil
		}
		return false, nil, false, nil
	}
	d.mayCrash = d.state.Presumed
	if d.state.Presumed {
		if d.state.Attempts >= d.policy.MaxAttempts {
			d.spent = true
			reason, settled, err := d.failed(fmt.Errorf("%w, in the last of %d attempts", errCrashed, d.state.Attempts), stores.ClassCrash)
			return true, reason, settled, err
		}
		if !d.goAlone() {
			return true, errAlone, false, nil
		}
	}
	if err := d.recordStart(); err != nil {
		if errors.Is(err, stores.ErrChanged) {
			err = ErrInFlight
		} else {
			d.tried = d.state.Attempts + 1
		}
		return true, d.unanswered(err), false, nil
	}
	d.claim.Take = d.state.Version
	return false, nil, false, nil
}

// mayBegin reports whether the row lets this delivery begin an attempt, and takes over
// what it says.
func (d *delivery) mayBegin(v stores.Verdict) bool {
	seen := v.Failure
	switch {
	case v.Outcome != stores.Claimable && v.Outcome != stores.Deferred:
		return false
	case d.counted != 0 && seen.Version == d.counted: // deferred by this delivery, for others
	case d.lostStart(seen):
		d.counted, d.state = seen.Version, seen
	case v.Outcome == stores.Deferred:
		return false
	default:
		d.counted, d.state = 0, seen
	}
	return true
}

// lostStart reports whether a presumption is the one of this delivery, whose record was
// not answered.
func (d *delivery) lostStart(f stores.FailureState) bool {
	return f.Presumed && d.tried != 0 && f.Attempts == d.tried
}

func (d *delivery) look() (stores.Verdict, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.ClaimTimeout)
	defer cancel()
	ctx = d.in.hooks.lookStarts(ctx, d.claim.Key)
	v, err := d.in.store.Look(ctx, d.claim.Key, d.claim.Fingerprint)
	d.in.hooks.lookEnds(ctx, v, err)
	return v, err
}

// recordStart counts the attempt. If it is the last thing that is heard of it, the
// record stands as it is.
//
// Until the attempt begins the message is not due for others: another delivery of it
// would count itself, and each the other, while none of them runs.
func (d *delivery) recordStart() error {
	f := d.newFailure(stores.ClassCrash, errCrashed.Error())
	f.Placement, f.Start = stores.PlacementRedelivered, true
	f.Attempts++
	if d.retry != nil {
		f.Placement, f.DueIn = stores.PlacementParked, d.retry.reserve
	} else {
		f.DueIn = d.in.config.ClaimTimeout + 2*d.in.config.Hold.MaxPause
		f.Topic, f.Coordinates, f.OrderKey = d.topic, d.facts.Coordinates, d.claim.OrderKey
	}
	return d.record(f)
}

// uncount takes back an attempt that was counted before it began and then neither
// failed nor succeeded. If that cannot be written down within ClaimTimeout it stays
// counted.
func (d *delivery) uncount(cause error) {
	if d.counted == 0 {
		return
	}
	f := d.newFailure(stores.ClassInterrupted, errorText(cause))
	f.Version, f.Placement = d.counted, stores.PlacementRedelivered
	f.Attempts--
	f.Uncounted++
	if d.retry != nil {
		f.Placement = stores.PlacementParked
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.ClaimTimeout)
	defer cancel()
	for pause := d.in.config.Hold.MinPause; ; pause = min(2*pause, d.in.config.Hold.MaxPause) {
		err := d.recordWithin(ctx, f)
		if err == nil || !concernsStore(err) || !sleep(ctx, jitter(pause)) {
			return
		}
	}
}

var errAlone = errors.New("middleware: other messages that may have ended a process run one at a time")

// goAlone waits until no other message runs here that may have ended a process: those
// that were only near it must not be counted again and again.
func (d *delivery) goAlone() bool {
	if d.alone {
		return true
	}
	d.stopAsking() // the one that runs alone may be waiting for its turn to ask
	if d.wait.since.IsZero() {
		d.wait.since = time.Now()
	}
	ctx, cancel := context.WithTimeout(d.shutdown, d.in.config.Hold.Limit-d.wait.held())
	defer cancel()
	select {
	case d.in.alone <- struct{}{}:
		d.alone = true
	case <-ctx.Done():
	}
	return d.alone
}

func (d *delivery) leaveAlone() {
	if d.alone {
		d.alone = false
		<-d.in.alone
	}
}
