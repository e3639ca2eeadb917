package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// failed records that an attempt has failed, and what that makes of the message. While
// it cannot be recorded the delivery is held: nothing is acked that is not kept.
//
// If the row has changed meanwhile, by another delivery or an operator, nothing is
// recorded and a new claim will tell what the message is now.
func (d *delivery) failed(cause error, class stores.Class) (reason error, settled bool, err error) {
	if errors.Is(cause, context.Canceled) && d.shutdown.Err() != nil {
		switch {
		case d.timedOut() && !counts(class): // the database's doing, and recorded as that
		case d.timedOut():
			cause, class = fmt.Errorf("%w: %w", errOuterDeadline, cause), stores.ClassTimeout
		case d.in.canceled.before(d.claim.Key):
			class = stores.ClassInterrupted
		default:
			return nil, true, d.notNow(cause) // a handler that heeds the shutdown has not failed
		}
	}
	d.awaited = false
	for {
		f, err := d.failure(cause, class)
		if err == nil {
			err = d.record(f)
		}
		switch {
		case err == nil:
			return nil, true, d.recorded(f, cause)
		case errors.Is(err, errNotKeepable):
			err := d.quarantine(stores.ReasonAckedEarly, fmt.Errorf("%w: %w", ErrAckedEarly, cause))
			if err == nil {
				d.settle(cause, class)
			}
			return nil, true, err
		case errors.Is(err, stores.ErrChanged) && d.ownEnd():
			continue
		case errors.Is(err, stores.ErrChanged):
			if d.unrecorded++; d.unrecorded >= maxRuns {
				return nil, true, d.notNow(errors.Join(err, cause))
			}
			return ErrInFlight, false, nil
		case errors.Is(err, stores.ErrTooLarge) && !d.tooLarge:
			d.tooLarge = true
			continue
		case errors.Is(err, stores.ErrNotRegistered), errors.Is(err, stores.ErrNotMigrated):
			return d.unanswered(err), false, nil // the tables are gone, and with them the claim
		}
		if (d.waitedEnough(err) || !d.hold(err)) && !d.copyLate(err) {
			return nil, true, d.notNow(errors.Join(err, cause))
		}
	}
}

// ownEnd waits until the transaction of the attempt that has failed is over at the server,
// too: one whose connection was lost or cut in the middle of a statement may still hold
// the key. It reports false if that is not what keeps the failure from being recorded.
func (d *delivery) ownEnd() bool {
	if d.in.resolver == nil || d.awaited || d.end.Runs == 0 {
		return false
	}
	d.awaited = true
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.CommitTimeout)
	defer cancel()
	completed, err := d.in.resolver.Resolve(ctx, d.claim.Key)
	return err == nil && !completed
}

// settle ends the row of a message that is kept elsewhere: nobody will deliver it again.
func (d *delivery) settle(cause error, class stores.Class) {
	if d.state.Version == 0 {
		return
	}
	f := d.newFailure(class, errorText(cause))
	f.Status, f.Placement = stores.StatusFailed, stores.PlacementRedelivered
	_ = d.record(f)
}

// errNotKeepable: the handler has acked a message that cannot be parked.
var errNotKeepable = errors.New("middleware: the message cannot be parked")

// newFailure is a pending failure of the message as it stands.
func (d *delivery) newFailure(class stores.Class, text string) *stores.Failure {
	return &stores.Failure{
		Key: d.claim.Key, Fingerprint: d.claim.Fingerprint, TraceParent: d.claim.TraceParent,
		Version: d.state.Version, Attempts: d.state.Attempts, Uncounted: d.state.Uncounted,
		OrderWait: d.policy.OrderWait,
		Status:    stores.StatusPending, Class: class, Error: text, Cause: stores.CauseOf(class, text),
	}
}

// failure decides what becomes of the message.
func (d *delivery) failure(cause error, class stores.Class) (*stores.Failure, error) {
	if d.retry.uncopied() {
		return d.copyAlone()
	}
	text := errorText(cause)
	f := d.newFailure(class, text)
	f.Placement, d.refused.waits = d.policy.Placement, false
	counted := d.counted != 0 || d.spent // before it began
	switch {
	case counts(class) && !counted:
		f.Attempts++
	case !counts(class) && counted:
		f.Attempts--
		f.Uncounted++
	case !counts(class):
		f.Uncounted++
	}
	age := d.state.Age
	if f.Attempts+f.Uncounted <= 1 {
		age = 0 // the first failure; what it did before was to wait for others
	}
	again, why := d.policy.verdict(class, f.Attempts, f.Uncounted, age)
	if again {
		f.DueIn = d.policy.pause(f.Attempts + f.Uncounted)
		if asked, ok := errors.AsType[*retryAfterError](cause); ok {
			f.DueIn = min(asked.after, d.policy.MaxAge-age)
		}
	} else {
		f.Status = stores.StatusFailed
		f.Error = cut(text, stores.MaxErrorBytes-len(why)-len(" [given up: ]")) + " [given up: " + why + "]"
	}
	if d.retry != nil {
		f.Placement = stores.PlacementParked // content and origin are in the row
	} else if err := d.addOrigin(f); err != nil {
		return nil, err
	}
	if !again && !d.refused.waits {
		if err := d.copyDeadLetter(f); err != nil {
			return nil, err
		}
	}
	f.Error = withStack(f.Error, cause)
	return f, nil
}

// addOrigin adds what a delivery of the broker knows of its message.
func (d *delivery) addOrigin(f *stores.Failure) error {
	f.Topic, f.Coordinates, f.OrderKey = d.topic, d.facts.Coordinates, d.claim.OrderKey
	state := d.in.config.Keep.state(d.size())
	if d.tooLarge {
		state = stores.ContentTooLarge
	}
	if state == stores.ContentKept && d.payloadChanged() {
		state = stores.ContentOneWay // for people: it is not what arrived
		if f.Status == stores.StatusFailed {
			f.Error = cut(f.Error, stores.MaxErrorBytes-len(changedInPlace)) + changedInPlace
		}
	}
	acked := d.end.Runs > 0 && d.acked()
	switch {
	case state == stores.ContentKept && (f.Placement == stores.PlacementParked || acked):
		f.Placement = stores.PlacementParked
	case acked:
		return errNotKeepable
	default:
		f.Placement = stores.PlacementRedelivered
	}
	if f.Placement == stores.PlacementRedelivered && f.Status == stores.StatusPending {
		if state == stores.ContentKept {
			state = stores.ContentNone // for now: the broker has it
		}
		f.Content = &stores.Content{State: state, UUID: d.origin().uuid}
		return nil
	}
	if state == stores.ContentTooLarge {
		f.Content = &stores.Content{State: state, UUID: d.origin().uuid}
		return nil
	}
	content, err := d.content()
	if err != nil {
		return d.notEncoded(f, err, acked)
	}
	content.State = state
	f.Content = content
	return nil
}

const changedInPlace = " [the handler has changed the payload in place: what is kept is not what arrived]"

// record writes f down.
func (d *delivery) record(f *stores.Failure) error {
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.RecordTimeout)
	defer cancel()
	return d.recordWithin(ctx, f)
}

func (d *delivery) recordWithin(ctx context.Context, f *stores.Failure) error {
	version, err := d.in.store.Record(ctx, *f)
	if err != nil {
		return fmt.Errorf("middleware: cannot record the failed attempt: %w", err)
	}
	d.answered()
	d.state.Version, d.state.Status, d.state.Placement = version, f.Status, f.Placement
	d.state.Attempts, d.state.Uncounted, d.state.Presumed = f.Attempts, f.Uncounted, f.Start
	d.counted = 0
	if f.Start {
		d.counted = version
	}
	return nil
}

// recorded is the answer for the router once a failure is on record.
func (d *delivery) recorded(f *stores.Failure, cause error) error {
	d.end.Class, d.end.Attempts, d.end.DueIn, d.end.Err = copied(f.Class), f.Attempts, f.DueIn, cause
	d.end.Final = f.Status == stores.StatusFailed
	if d.retry == nil && d.end.Runs > 0 && d.acked() {
		d.end.Err = errors.Join(ErrAckedEarly, cause)
	}
	switch {
	case d.refused.waits:
		d.end.Result = ResultNotNow
		brokers.SetGiveBack(d.msg, brokers.GiveBack{After: d.policy.pause(f.Attempts + f.Uncounted)})
		return &notNowError{cause: fmt.Errorf("middleware: the message has failed for good, and waits to be kept or copied: %w", cause), held: d.wait.held()}
	case f.Status == stores.StatusFailed:
		d.end.Result = ResultFailed
		return nil
	case f.Placement == stores.PlacementParked:
		d.end.Result = ResultParked
		d.in.workers.parked(f.Key.Consumer, f.DueIn)
		return nil
	}
	d.end.Result, d.end.Err = ResultGivenBack, nil
	brokers.SetGiveBack(d.msg, brokers.GiveBack{Failed: true, After: f.DueIn})
	return &givenBackError{cause}
}

// parkBehind parks a message whose order key has an earlier one pending.
func (d *delivery) parkBehind() (reason error, settled bool, err error) {
	if !d.in.config.Keep.canPark(d.size()) || d.tooLarge {
		return errBehind, false, nil
	}
	f := d.newFailure(stores.ClassOrder, errBehind.Error())
	f.Placement = stores.PlacementParked
	f.Topic, f.Coordinates, f.OrderKey = d.topic, d.facts.Coordinates, d.claim.OrderKey
	if d.counted != 0 {
		f.Attempts-- // it has not begun after all
	}
	if f.Content, err = d.content(); err == nil {
		err = d.record(f)
	}
	switch {
	case err == nil:
		d.end.Result, d.end.Class, d.end.Attempts = ResultParked, f.Class, f.Attempts
		d.in.workers.parked(f.Key.Consumer, d.policy.Backoff.Min)
		return nil, true, nil
	case errors.Is(err, stores.ErrChanged):
		return ErrInFlight, false, nil
	case errors.Is(err, stores.ErrTooLarge):
		d.tooLarge = true
		return errBehind, false, nil
	}
	return err, false, nil
}

var (
	errBegun    = fmt.Errorf("%w, or its process has ended", ErrInFlight)
	errBehind   = errors.New("middleware: an earlier message of the same order key has failed and is not completed yet")
	errDeferred = errors.New("middleware: the message has failed before, and it is too early for its next attempt")
)

// untilDue holds a delivery that came too early for its next attempt.
func (d *delivery) untilDue(due time.Duration) (reason error, settled bool, err error) {
	d.wait.due = due
	return errDeferred, false, nil
}

// errorText is what an error says. Its method may be the program's.
func errorText(err error) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("a %T whose Error method panicked: %v", err, r)
		}
	}()
	if err == nil {
		return ""
	}
	return err.Error()
}

// cut returns at most limit bytes of s.
func cut(s string, limit int) string { return s[:min(len(s), max(limit, 0))] }
