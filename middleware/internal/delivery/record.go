package delivery

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/keep"
	"github.com/millpond-go/millpond/middleware/internal/panics"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// fail leads to the record of a failed attempt, unless the handler returned because its context
// ended, which is no failure.
func (d *Delivery) fail(cause error, class stores.Class) next {
	if errors.Is(cause, context.Canceled) && d.arrival.Contexts.Shutdown.Err() != nil && class != stores.ClassUnconfirmed {
		switch {
		case d.timedOut() && !budget.Counts(class): // the database's fault, and recorded as such
		case d.timedOut():
			cause, class = fmt.Errorf("%w: %w", errOuterDeadline, cause), d.confirmed(stores.ClassTimeout)
		case d.core.canceled.before(d.arrival.Claim.Key):
			class = d.confirmed(stores.ClassInterrupted)
		case d.leased() != nil && d.acked(): // nobody redelivers it, and its effect may have happened
			class = d.confirmed(stores.ClassInterrupted)
		default:
			return next{state: givingBack, cause: cause}
		}
	}
	d.tries.awaited = false
	return next{state: recording, cause: cause, class: class}
}

// record records a failed attempt and the message's new state. Until then the delivery is held: no
// message is acked before it is kept.
//
// If another delivery or an operator changed the row meanwhile, nothing is recorded, and a new
// claim decides.
func (d *Delivery) record(n next) next {
	f, err := d.failure(n.cause, n.class)
	if err == nil {
		err = d.write(f)
	}
	switch {
	case err == nil:
		return d.recorded(f, n.cause)
	case errors.Is(err, errNotKeepable):
		n.state, n.reason = quarantining, stores.ReasonAckedEarly
		return n
	case errors.Is(err, stores.ErrChanged) && d.ownEnd():
		return n
	case errors.Is(err, stores.ErrChanged) && d.stillHolds():
		n.state, n.why, n.back = holding, err, recording
		return n
	case errors.Is(err, stores.ErrChanged):
		if d.tries.unrecorded++; d.tries.unrecorded >= maxRuns {
			return next{state: givingBack, cause: errors.Join(err, n.cause)}
		}
		return heldFor(ErrInFlight)
	case errors.Is(err, stores.ErrTooLarge) && !d.refused.tooLarge:
		d.refused.tooLarge = true
		return n
	case errors.Is(err, stores.ErrNotRegistered), errors.Is(err, stores.ErrNotMigrated):
		return heldFor(d.unanswered(err)) // the tables and the claim are gone
	}
	n.state, n.why, n.back = holding, err, recording
	return n
}

// ownEnd waits until the server has ended the failed attempt's transaction, which may still hold
// the key after its connection was lost in the middle of a statement. It reports false if something
// else keeps the failure from being recorded.
func (d *Delivery) ownEnd() bool {
	if d.tries.awaited || d.end.Runs == 0 {
		return false
	}
	d.tries.awaited = true
	completed, can, err := d.execution.Resolve(d.arrival.Claim.Key)
	return can && err == nil && !completed
}

// errNotKeepable: the handler acked a message that cannot be parked.
var errNotKeepable = errors.New("middleware: the message cannot be parked")

// newFailure returns a pending failure of the message in its current state.
func (d *Delivery) newFailure(class stores.Class, text string) *stores.Failure {
	c := &d.arrival.Claim
	f := pendingFailure(&d.row.state, d.arrival.Policy, class, text)
	f.Key, f.Fingerprint, f.TraceParent = c.Key, c.Fingerprint, c.TraceParent
	if d.row.counted != 0 {
		f.Attempts -= d.row.lent
	}
	f.Lapsed = d.takesOver()
	return f
}

// pendingFailure returns a pending failure of a message in state s.
func pendingFailure(s *stores.FailureState, p *Policy, class stores.Class, text string) *stores.Failure {
	return &stores.Failure{
		Version: s.Version, Attempts: s.Attempts, Uncounted: s.Uncounted, OrderWait: p.OrderWait,
		Status: stores.StatusPending, Class: class, Error: text, Cause: stores.CauseOf(class, text),
	}
}

// message returns the message as it arrived.
func (d *Delivery) message() keep.Message { return d.arrival.Handler.Message() }

// addOrigin adds where the message is at its broker.
func (d *Delivery) addOrigin(f *stores.Failure) {
	f.Topic, f.Coordinates, f.OrderKey = d.arrival.Origin.Topic, d.arrival.Origin.Coordinates, d.arrival.Claim.OrderKey
}

// failure decides what becomes of the message.
func (d *Delivery) failure(cause error, class stores.Class) (*stores.Failure, error) {
	r, policy := d.arrival.Retry, d.arrival.Policy
	if r.uncopied() {
		return d.copyAlone()
	}
	f := d.newFailure(class, text.Of(cause))
	f.Placement, d.refused.waits = policy.Placement, false
	spent := budget.Spent{Attempts: f.Attempts, Uncounted: f.Uncounted}.After(class, d.row.counted != 0 || d.row.spent)
	f.Attempts, f.Uncounted = spent.Attempts, spent.Uncounted
	age := d.row.state.Age
	if spent.All() <= 1 {
		age = 0 // the first failure: until now the message only waited
	}
	again, why := policy.Again(class, spent, age)
	if again {
		f.DueIn = policy.Pause(spent.All())
		if asked, ok := budget.Delayed(cause); ok {
			f.DueIn = min(asked, policy.Age-age)
		}
	} else {
		f.Status = stores.StatusFailed
		f.Error = text.Cut(f.Error, stores.MaxErrorBytes-len(why)-len(" [given up: ]")) + " [given up: " + why + "]"
	}
	if r != nil {
		f.Placement = stores.PlacementParked // content and origin are in the row
	} else if err := d.place(f); err != nil {
		return nil, err
	}
	if !again && !d.refused.waits {
		if err := d.copyLetter(f); err != nil {
			return nil, err
		}
	}
	f.Error = panics.WithStack(f.Error, cause)
	return f, nil
}

// place decides who keeps the message until its next attempt, the broker or the store, and adds
// what the store keeps.
func (d *Delivery) place(f *stores.Failure) error {
	d.addOrigin(f)
	state := d.contentState()
	if state == stores.ContentKept && d.changed() {
		state = stores.ContentOneWay // for people only: it is not what arrived
		if f.Status == stores.StatusFailed {
			f.Error = text.Cut(f.Error, stores.MaxErrorBytes-len(changedInPlace)) + changedInPlace
		}
	}
	acked := d.acked()
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
			state = stores.ContentNone // the broker still has it
		}
		f.Content = d.without(state)
		return nil
	}
	if state == stores.ContentTooLarge {
		f.Content = d.without(state)
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

var errEndsProcess = budget.Mark(errors.New("middleware: the process has ended while the codec was asked, or before"), stores.ClassPermanent)

const changedInPlace = " [the handler has changed the payload in place: what is kept is not what arrived]"

// contentState says what the store keeps of the message.
func (d *Delivery) contentState() stores.ContentState {
	if d.refused.tooLarge {
		return stores.ContentTooLarge
	}
	return d.core.Keep.State(d.message())
}

func (d *Delivery) content() (*stores.Content, error) {
	if d.refused.endsProcess {
		return nil, errEndsProcess
	}
	return d.core.Keep.Content(d.arrival.Contexts.Detached, d.message())
}

// without returns content with nothing but the UUID.
func (d *Delivery) without(state stores.ContentState) *stores.Content {
	return &stores.Content{State: state, UUID: d.message().UUID}
}

// writes returns a context for a write of a failure.
func (d *Delivery) writes() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.arrival.Contexts.Detached, d.core.Times.Record)
}

// write records f.
func (d *Delivery) write(f *stores.Failure) error {
	ctx, cancel := d.writes()
	defer cancel()
	return d.writeWithin(ctx, f)
}

func (d *Delivery) writeWithin(ctx context.Context, f *stores.Failure) error {
	version, err := d.core.Rows.Record(ctx, *f)
	if err != nil {
		return fmt.Errorf("middleware: cannot record the failed attempt: %w", err)
	}
	d.turn.Answered()
	s := &d.row.state
	s.Version, s.Status, s.Placement = version, f.Status, f.Placement
	s.Attempts, s.Uncounted, s.Presumed, s.Class = f.Attempts, f.Uncounted, f.Start, f.Class
	d.row.counted, d.row.started = 0, start{}
	if f.Start {
		d.row.counted = version
	}
	return nil
}

// recorded ends a delivery whose failure is on record.
func (d *Delivery) recorded(f *stores.Failure, cause error) next {
	e := &d.end
	e.Class, e.Attempts, e.DueIn, e.Err = failureClass(f.Class), f.Attempts, f.DueIn, cause
	e.Final = f.Status == stores.StatusFailed
	if d.ackedEarly() {
		e.Err = errors.Join(ErrAckedEarly, cause)
	}
	switch {
	case d.refused.waits:
		e.Back = GiveBack{After: d.arrival.Policy.Pause(f.Attempts + f.Uncounted)}
		e.Up = d.notNow(fmt.Errorf("middleware: the message has failed for good, and waits to be kept or copied: %w", cause))
		return d.done(NotNow)
	case f.Status == stores.StatusFailed:
		return d.done(Failed)
	case f.Placement == stores.PlacementParked:
		d.arrival.Observer.Parked(f.DueIn)
		return d.done(Parked)
	}
	e.Err, e.Back, e.Up = nil, GiveBack{Failed: true, After: f.DueIn}, &GivenBackError{cause}
	return d.done(GivenBack)
}

// parkBehind parks a message behind an earlier pending one of its order key.
func (d *Delivery) parkBehind() next {
	if d.refused.tooLarge || !d.core.Keep.CanPark(d.message()) {
		return heldFor(ErrBehind)
	}
	f := d.newFailure(stores.ClassOrder, ErrBehind.Error())
	f.Placement = stores.PlacementParked
	d.addOrigin(f)
	if d.row.counted != 0 {
		f.Attempts-- // the attempt has not begun
	}
	var err error
	if f.Content, err = d.content(); err == nil {
		err = d.write(f)
	}
	switch {
	case err == nil:
		d.end.Class, d.end.Attempts = f.Class, f.Attempts
		d.arrival.Observer.Parked(d.arrival.Policy.Min)
		return d.done(Parked)
	case errors.Is(err, stores.ErrChanged):
		return heldFor(ErrInFlight)
	case errors.Is(err, stores.ErrTooLarge):
		d.refused.tooLarge = true
		return heldFor(ErrBehind)
	}
	return heldFor(err)
}
