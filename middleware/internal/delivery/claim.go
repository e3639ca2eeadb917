package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// first returns a delivery's first state.
func (d *Delivery) first() next {
	if unfit := d.arrival.Unfit; unfit != nil && unfit.Reason == "" {
		return next{state: nameless}
	}
	return next{state: registering}
}

// register registers the consumer, and then settles what is known without asking the store.
func (d *Delivery) register() next {
	if !d.arrival.Consumer.Known() {
		ctx, cancel := d.asks()
		err := d.arrival.Consumer.Register(ctx)
		cancel()
		if err != nil {
			return next{state: holding, why: err, back: registering}
		}
		d.turn.Answered()
	}
	if unfit := d.arrival.Unfit; unfit != nil {
		return next{state: quarantining, reason: unfit.Reason, cause: unfit.Err}
	}
	if d.arrival.Retry == nil && d.end.Outcome == 0 {
		if trace, ok := d.core.Completed.Lookup(d.arrival.Claim.Key, d.arrival.Claim.Fingerprint); ok {
			d.end.Outcome, d.end.Cached = stores.Duplicate, true
			d.end.Verdict.Outcome, d.end.Verdict.TraceParent = stores.Duplicate, trace
			return d.done(Duplicate)
		}
	}
	return next{state: entering}
}

// asks returns a context for a call of the store.
func (d *Delivery) asks() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.arrival.Contexts.Detached, d.core.Times.Claim)
}

// enter waits for the delivery's turn to ask, and starts over.
func (d *Delivery) enter() next {
	if err := d.turn.Enter(errPaused); err != nil {
		return next{state: givingBack, cause: err}
	}
	r := d.arrival.Retry
	d.row.suspect = d.row.suspect || d.arrival.Consumer.Suspects()
	switch {
	case d.turn.Waited() && !d.arrival.Consumer.Known(): // the tables were gone meanwhile
		return next{state: registering}
	case r.uncopied(): // it has failed for good and only its copy is missing
		return d.fail(errUncopied, d.row.state.Class)
	case r != nil && r.Spent:
		return d.crashed()
	case r.unreadable():
		return d.fail(r.Unreadable, stores.ClassUnreadable)
	}
	return d.askStore()
}

// claim asks for the claim, and acts on the answer.
func (d *Delivery) claim() next {
	if n, over := d.repeated(); over {
		return n
	}
	claim := d.arrival.Claim
	claim.Take = d.row.take
	asked := time.Now()
	verdict, err := d.execution.Claim(claim)
	if err != nil {
		return heldFor(d.unanswered(err))
	}
	d.turn.Answered()
	if d.core.Completed.Answered(verdict.Server, asked) {
		return d.registerAgain()
	}
	d.arrival.Consumer.Repeats().note(verdict.Outcome)
	return d.act(verdict)
}

// registerAgain starts over at a server that may lack rows that the earlier one had.
func (d *Delivery) registerAgain() next {
	if d.execution.Open() {
		d.rollBack(nil)
	}
	ctx, cancel := d.asks()
	defer cancel()
	if err := d.arrival.Consumer.RegisterAgain(ctx); err != nil {
		return heldFor(d.unanswered(err))
	}
	return d.askStore()
}

func (d *Delivery) act(v stores.Verdict) next {
	d.end.Outcome, d.end.Verdict = v.Outcome, v
	switch v.Outcome {
	case stores.Claimed:
		return d.begin(v.Failure)
	case stores.Duplicate:
		d.core.Completed.Add(d.arrival.Claim.Key, v.Fingerprint, v.TraceParent, v.Server)
		if d.end.Unsure { // the commit was unknown, and had happened
			return d.done(Completed)
		}
		return d.done(Duplicate)
	case stores.Parked:
		return d.done(Parked)
	case stores.Final:
		return next{state: keeping}
	case stores.Deferred:
		if v.Failure.Presumed {
			return heldFor(errBegun) // it ends soon if its process is alive
		}
		d.turn.NotBefore(v.Failure.DueIn)
		return heldFor(ErrDeferred)
	case stores.Behind:
		return d.parkBehind()
	case stores.Conflict:
		return next{state: quarantining, reason: stores.ReasonConflict, cause: conflicts(v)}
	case stores.Stale:
		if err := d.arrival.Consumer.AdmitsStale(); err != nil {
			return heldFor(err)
		}
		return next{state: quarantining, reason: stores.ReasonStale, cause: tooOld(&d.arrival.Claim, v)}
	case stores.InFlight:
		return heldFor(ErrInFlight)
	case stores.Claimable:
		fallthrough // only Look returns this
	default:
		return heldFor(fmt.Errorf("middleware: the store answered with an outcome this version does not know (%d)", v.Outcome))
	}
}

func conflicts(v stores.Verdict) error {
	if v.CompletedAt.IsZero() || v.Failure.Version != 0 {
		return errors.New("middleware: the id was used before for another message, which has failed")
	}
	return fmt.Errorf("middleware: the id was used before for another message, completed at %s", v.CompletedAt.UTC().Format(time.RFC3339))
}

func tooOld(c *stores.Claim, v stores.Verdict) error {
	return fmt.Errorf("middleware: it is not known whether the message was completed: the broker took it at %s, and the consumer was purged up to %s",
		c.Time.UTC().Format(time.RFC3339), v.PurgedThrough.UTC().Format(time.RFC3339))
}

// begin runs a claimed message, unless its earlier failures forbid it.
func (d *Delivery) begin(earlier stores.FailureState) next {
	if d.row.take != 0 {
		return next{state: running}
	}
	d.row.state = earlier
	if !earlier.Presumed {
		return next{state: running}
	}
	// The last attempt may have ended its process, although the broker did not flag a redelivery.
	d.row.suspect = true
	d.rollBack(nil)
	return next{state: looking}
}
