package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/middleware/internal/panics"
	"github.com/millpond-go/millpond/stores"
)

// run runs the handler in the claimed attempt, and finishes or undoes it.
func (d *Delivery) run() next {
	if d.changed() { // by an earlier run of this delivery, which had to claim again
		d.rollBack(errPayloadChanged)
		return d.fail(errPayloadChanged, stores.ClassConduct)
	}
	if err := d.forgotten(); err != nil {
		d.rollBack(nil)
		return d.fail(err, stores.ClassUnconfirmed)
	}
	d.end.Runs++
	ctx, cancel := context.WithTimeout(d.arrival.Contexts.Detached, d.core.Times.Handler)
	defer cancel()
	outputs, err := d.arrival.Handler.Run(ctx, d.execution)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("%w of %s", ErrHandlerTimeout, d.core.Times.Handler)
	}
	if err != nil {
		return d.undo(err)
	}
	return d.finish(outputs)
}

// changed reports whether an earlier run of this delivery changed the payload in place.
func (d *Delivery) changed() bool { return d.end.Runs > 0 && d.arrival.Handler.Changed() }

// acked reports whether the handler acked the message itself.
func (d *Delivery) acked() bool { return d.end.Runs > 0 && d.arrival.Handler.Acked() }

// ackedEarly reports whether the handler acked the message itself, so that nobody else has it.
func (d *Delivery) ackedEarly() bool { return d.arrival.Retry == nil && d.acked() }

// finish ends the attempt of a handler that succeeded.
func (d *Delivery) finish(outputs []stores.Output) next {
	d.outputs = outputs // for another try, and after an unknown commit that did not happen
	acked := d.acked()  // read before the commit, because only an ack before it matters
	end := d.execution.Finish(outputs)
	switch {
	case end.Err == nil:
		d.core.Completed.Add(d.arrival.Claim.Key, d.arrival.Claim.Fingerprint, d.arrival.Claim.TraceParent, cmp.Or(end.Server, d.end.Verdict.Server))
		if acked {
			d.end.Err = ErrAckedEarly
		}
		return d.done(Completed)
	case end.Again:
		return next{state: holding, cause: end.Err, why: end.Err, back: finishing}
	case errors.Is(end.Err, stores.ErrNotCommitted):
		return d.failed(end, fmt.Errorf("middleware: %w", end.Err))
	}
	d.core.Completed.Flush()
	d.end.Unsure = true
	return next{state: resolving, cause: end.Err}
}

// undo rolls back for a reason. If the rollback fails, the connection is closed, which also ends
// the attempt.
func (d *Delivery) undo(cause error) next { return d.failed(d.rollBack(cause), cause) }

func (d *Delivery) rollBack(cause error) execute.Ended {
	end := d.execution.Undo(cause)
	if end.Err != nil {
		d.core.Completed.Flush()
	}
	return end
}

// failed decides what follows an attempt that was not committed.
//
// If the handler went around its transaction, it may have committed part of its effects, and the
// claim with them: running it again would double them, and dropping the message would lose the
// rest. Interruptions by the database, and contention, are first tried again.
func (d *Delivery) failed(end execute.Ended, cause error) next {
	if end.Lost {
		return heldFor(ErrInFlight)
	}
	if end.Cut != nil && !errors.Is(cause, execute.ErrLeaseLost) { // whatever the handler returned
		cause = fmt.Errorf("%w: %w", end.Cut, cause)
	}
	if end.Escaped {
		return next{state: escaping, cause: cause, why: end.Err, ended: &end}
	}
	if end.Apart {
		return d.apart(cause)
	}
	if err := end.Interrupted; err != nil && !decided(cause) {
		if d.changed() {
			return d.fail(errors.Join(errPayloadChanged, cause), stores.ClassConduct)
		}
		if d.runAgain() {
			return heldFor(err)
		}
		return d.fail(cause, stores.ClassInterrupted)
	}
	class := d.classify(cause, end.Refused)
	if class == stores.ClassContention && !end.Happened && d.tries.immediate < d.arrival.Policy.MaxImmediate && !d.changed() && !d.leaving {
		d.tries.immediate++
		d.turn.Together()
		return next{state: entering} // at once
	}
	return d.fail(cause, class)
}

// apart runs a handler again, alone, after it shared a transaction. That is no failure.
func (d *Delivery) apart(cause error) next {
	switch {
	case d.leaving:
		return d.fail(cause, stores.ClassInterrupted)
	case d.changed():
		return d.fail(errors.Join(errPayloadChanged, cause), stores.ClassConduct)
	}
	return next{state: entering}
}

// runAgain counts an interruption, and reports whether another run may follow.
func (d *Delivery) runAgain() bool {
	d.tries.interruptions++
	return d.tries.interruptions < maxRuns && !d.timedOut()
}

// escape finds out what a handler committed outside its transaction.
func (d *Delivery) escape(n next) next {
	committed, err := d.execution.Escaped()
	switch {
	case err != nil:
		n.state, n.why, n.back = holding, err, escaping
		return n
	case committed:
		return next{state: quarantining, reason: stores.ReasonTxCommitted, cause: errors.Join(n.cause, n.ended.Err)}
	}
	n.ended.Escaped = false
	return d.failed(*n.ended, n.cause)
}

// resolve finds out the outcome of an unknown commit. If the commit did not happen, the delivery
// claims again, which is no failure of the handler.
func (d *Delivery) resolve(unknown error) next {
	completed, can, err := d.execution.Resolve(d.arrival.Claim.Key) // otherwise the next claim decides
	switch {
	case err != nil:
		return next{state: holding, cause: unknown, why: err, back: resolving}
	case can && completed:
		// This attempt, another delivery since, or another message with the same id may have
		// completed it: the claim decides.
		return d.askStore()
	}
	d.end.Unsure = d.end.Unsure && !can // the commit did not happen
	switch {
	case d.leased() != nil && d.runAgain(): // without the handler
		return next{state: holding, cause: unknown, why: unknown, back: finishing}
	case d.leased() != nil:
		return d.uncompleted(unknown)
	case d.changed():
		return d.fail(errors.Join(errPayloadChanged, unknown), stores.ClassConduct)
	case d.runAgain():
		return heldFor(unknown)
	}
	return d.fail(unknown, stores.ClassUnknown)
}

// askStore returns the state that asks the store: looking for a suspect or under a lease, else claiming.
func (d *Delivery) askStore() next {
	if d.row.suspect || d.leased() != nil {
		return next{state: looking}
	}
	return next{state: claiming}
}

// decided reports whether the handler's error decides about its message, even if the database also
// interrupted it.
func decided(cause error) bool {
	_, marked := budget.Marked(cause)
	_, later := budget.Delayed(cause)
	return marked || later || unsayable(cause)
}

// unsayable reports whether the handler published a message that can never be published.
func unsayable(cause error) bool {
	for _, known := range classes {
		if known.class == stores.ClassOutputs && errors.Is(cause, known.err) {
			return true
		}
	}
	return false
}

// classify returns an error's class. The handler's mark comes first, then the program's policy,
// then the database's refusals.
func (d *Delivery) classify(cause error, refused bool) stores.Class {
	return d.confirmed(d.kind(cause, refused))
}

func (d *Delivery) kind(cause error, refused bool) stores.Class {
	if class, ok := budget.Marked(cause); ok {
		return class
	}
	if class := d.arrival.Handler.Classify(cause); class != "" {
		return failureClass(class)
	}
	for _, known := range classes {
		if errors.Is(cause, known.err) {
			return known.class
		}
	}
	if refused && !decided(cause) {
		return stores.ClassPermanent
	}
	return stores.ClassTransient
}

// classes has the classes of known errors. The first match counts.
var classes = []struct {
	err   error
	class stores.Class
}{
	{stores.ErrTxContended, stores.ClassContention},
	{ErrOutputs, stores.ClassOutputs},
	{ErrUnknownDestination, stores.ClassOutputs},
	{ErrUnknownTopic, stores.ClassOutputs},
	{ErrOutputTooLarge, stores.ClassOutputs},
	{stores.ErrInvalidOutput, stores.ClassOutputs},
	{stores.ErrTooLarge, stores.ClassOutputs},
	{stores.ErrUnordered, stores.ClassOutputs},
	{stores.ErrFailureHidden, stores.ClassConduct}, // whatever the hidden error was
	{panics.ErrPanicked, stores.ClassPanic},
	{execute.ErrStepMisused, stores.ClassConduct},
	{execute.ErrJournal, stores.ClassInterrupted},
	{ErrHandlerTimeout, stores.ClassTimeout},
	{context.DeadlineExceeded, stores.ClassTimeout},
	{stores.ErrTxExpired, stores.ClassTimeout},
	{stores.ErrTxEnded, stores.ClassConduct},
	{stores.ErrTxBusy, stores.ClassConduct},
	{stores.ErrReentered, stores.ClassConduct},
	{stores.ErrTxManaged, stores.ClassConduct},
	{ErrForeignTx, stores.ClassConduct},
	{execute.ErrLeaseLost, stores.ClassTimeout},
}

// timedOut reports whether a deadline ended the message's context, such as one from a Timeout
// middleware around the inbox. Then the delivery cannot wait, and its failure is recorded;
// otherwise the message would come back for ever.
func (d *Delivery) timedOut() bool {
	return errors.Is(d.arrival.Contexts.Shutdown.Err(), context.DeadlineExceeded)
}
