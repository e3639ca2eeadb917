package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
)

// maxRuns is how often the handler is run for one delivery when nothing but the
// database went wrong, before that is recorded as a failure, though not counted: no
// message may keep a consumer busy for ever, not even one that brings the server down.
const maxRuns = 3

var (
	errPanicked       = errors.New("middleware: the handler panicked")
	errExited         = fmt.Errorf("%w: it exited its goroutine (runtime.Goexit)", errPanicked)
	errPayloadChanged = errors.New("middleware: the handler has changed the payload in place, so it cannot be run again")
	errContention     = errors.New("middleware: contention, to be tried again at once")
)

// runClaimed runs the handler unless the message's earlier failures forbid it.
func (d *delivery) runClaimed(earlier stores.FailureState) (reason error, settled bool, err error) {
	if d.claim.Take != 0 {
		return d.run()
	}
	d.state = earlier
	if !earlier.Presumed {
		return d.run()
	}
	// Its last attempt may have ended the process, and the broker does not say so.
	d.suspect = true
	_ = d.rollBack()
	return d.claimAndRun()
}

// run runs the handler in the attempt and ends it. If it is known that nothing
// happened and that it was not the handler's fault, it returns the reason to try again.
func (d *delivery) run() (reason error, settled bool, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.HandlerTimeout)
	defer cancel()
	if d.payloadChanged() { // by an earlier run, of a delivery that had to claim again
		_ = d.rollBack()
		return d.failed(errPayloadChanged, stores.ClassConduct)
	}
	d.end.Runs++
	if d.end.Runs == 1 {
		if len(d.metadata) > 0 {
			d.metadata = maps.Clone(d.metadata)
		} else {
			d.metadata = nil // what the handler sets in its message's is not what arrived
		}
	}
	outputs, err := d.call(ctx)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("%w of %s", ErrHandlerTimeout, d.in.config.HandlerTimeout)
	}
	switch {
	case errors.Is(err, stores.ErrNoTx):
		return d.undo(fmt.Errorf("%w (the inbox is on a %T)", err, d.in.store))
	case err != nil:
		return d.undo(err)
	case len(outputs) > 0:
		return d.undo(fmt.Errorf("%w (%d returned); the attempt is rolled back", ErrOutputs, len(outputs)))
	}
	acked := d.acked() // asked before the commit: afterwards it would be too late to matter
	attempt := d.attempt
	err = d.commit()
	switch {
	case err == nil:
		d.completed()
		if acked {
			d.end.Err = ErrAckedEarly
		}
		return nil, true, nil
	case errors.Is(err, stores.ErrNotCommitted):
		return d.after(attempt, err, fmt.Errorf("middleware: %w", err))
	default:
		return d.unknown(err)
	}
}

// call calls the handler with the attempt's context.
func (d *delivery) call(ctx context.Context) (outputs []*message.Message, err error) {
	mark := &running{Context: ctx, inbox: d.in, msg: d.msg, key: d.claim.Key, outer: d.outer}
	arrived := d.msg.Context()
	d.msg.SetContext(d.attempt.Context(mark))
	var start time.Time
	if len(d.in.hooks.handlerEnd) > 0 {
		start = time.Now()
	}
	defer func() {
		mark.over.Store(true)
		d.restore()
		d.msg.SetContext(arrived)
	}()
	outputs, err = d.next(d.msg)
	if tx := mark.foreignTx(); tx != nil {
		err = errors.Join(tx, err)
	}
	d.in.hooks.handlerEnds(ctx, time.Since(start), err)
	return outputs, err
}

// abandoned ends a delivery whose handler did not return. A panic goes on
// up as a PanicError; recovered is nil after runtime.Goexit, and then only we can settle
// the message.
func (d *delivery) abandoned(recovered any) {
	err := errExited
	var p *PanicError
	if recovered != nil {
		p = newPanicError(recovered)
		err = panicked{p}
	}
	var settled bool
	if d.attempt != nil {
		_, settled, _ = d.undo(err)
	} else {
		_, settled, _ = d.failed(err, stores.ClassPanic)
	}
	if !settled { // it would be tried again; instead it goes back, or is kept if it was acked
		_ = d.notNow(err)
	}
	if d.end.Result != ResultQuarantined {
		d.end.Result = ResultPanicked
	}
	d.end.Err = err
	d.report()
	d.ended()
	d.retry.ended(d.end)
	if p != nil {
		panic(p)
	}
	d.msg.Nack() // nobody else would
}

func (d *delivery) commit() error {
	ctx := d.patience.start(d.ctx, d.in.config.CommitTimeout)
	ctx = d.in.hooks.commitStarts(ctx)
	attempt := d.attempt
	d.attempt = nil
	err := d.patience.stop("CommitTimeout", attempt.Commit(ctx))
	d.in.hooks.commitEnds(ctx, err)
	return err
}

// undo rolls back for a reason. If the rollback fails the connection is closed, which
// ends the attempt too.
func (d *delivery) undo(cause error) (reason error, settled bool, err error) {
	attempt := d.attempt
	return d.after(attempt, d.rollBack(), cause)
}

func (d *delivery) rollBack() error {
	attempt := d.attempt
	d.attempt = nil
	err := d.patience.stop("CommitTimeout", attempt.Rollback(d.patience.start(d.ctx, d.in.config.CommitTimeout)))
	if err != nil {
		d.in.completed.flush()
	}
	return err
}

// after records a failure when an attempt was not committed, with two exceptions.
//
// If the handler went around its transaction it may have committed part of its effects,
// and the claim with them: running it again would double them, and dropping it would
// lose the rest. And what was the database's doing, or a concurrency conflict, is tried
// again at first.
func (d *delivery) after(attempt stores.Attempt, ended, cause error) (reason error, settled bool, _ error) {
	if e, ok := attempt.(stores.Escapable); ok && errors.Is(ended, stores.ErrTxEscaped) {
		committed, err := d.resolve(e.Escaped)
		switch {
		case err != nil:
			return nil, true, d.notNow(err)
		case committed:
			return nil, true, d.quarantine(stores.ReasonTxCommitted, errors.Join(cause, ended))
		}
	}
	if err := interrupted(attempt); err != nil && !decided(cause) {
		if d.payloadChanged() {
			return d.failed(errors.Join(errPayloadChanged, cause), stores.ClassConduct)
		}
		if d.interruptions++; d.interruptions < maxRuns && !d.timedOut() {
			return err, false, nil
		}
		return d.failed(cause, stores.ClassInterrupted)
	}
	class := d.classify(attempt, cause)
	if class == stores.ClassContention && d.immediate < d.policy.MaxImmediate && !d.payloadChanged() {
		d.immediate++
		return errContention, false, nil
	}
	return d.failed(cause, class)
}

// decided reports whether the handler has said what is to become of its message. That it
// met trouble of the database's on the way does not matter then.
func decided(cause error) bool {
	_, marked := errors.AsType[*classifiedError](cause)
	_, later := errors.AsType[*retryAfterError](cause)
	return marked || later || errors.Is(cause, ErrOutputs)
}

// interrupted returns why the database kept the attempt from succeeding, if it did.
func interrupted(attempt stores.Attempt) error {
	if i, ok := attempt.(stores.Interruptible); ok {
		return i.Interrupted()
	}
	return nil
}

// classify asks the policy, whose classifier may be a function of the program, and then
// the database, whether it would refuse the message each time.
func (d *delivery) classify(attempt stores.Attempt, cause error) (class stores.Class) {
	class = stores.ClassTransient
	otherwise := class
	if r, ok := attempt.(stores.Refusing); ok && !decided(cause) && r.Refuses(cause) {
		otherwise = stores.ClassPermanent
	}
	d.in.panics.note("RetryPolicy.Classify", d.claim.Key, callback.Call("it", func() error {
		class = d.policy.classify(cause, otherwise)
		return nil
	}))
	return copied(class)
}

// restore undoes what a run made of its message, so that the next one, by us or by a
// middleware around the inbox, is given what arrived: that of a committed run finds its
// duplicate. Bytes changed in place are not undone: see payloadChanged. What was left alone
// is not written, for somebody may still read it.
func (d *delivery) restore() {
	m := d.msg
	if m.UUID != d.uuid {
		m.UUID = d.uuid
	}
	if len(m.Payload) != len(d.payload) || len(d.payload) > 0 && &m.Payload[0] != &d.payload[0] {
		m.Payload = d.payload
	}
	if !maps.Equal(m.Metadata, d.metadata) {
		m.Metadata = make(message.Metadata, len(d.metadata))
		maps.Copy(m.Metadata, d.metadata)
	}
}

func (d *delivery) completed() {
	d.end.Result = ResultCompleted
	d.in.completed.add(d.claim.Key, d.claim.Fingerprint, d.claim.TraceParent)
}

// unknown finds out what became of a commit. If it did not happen the delivery
// claims again; that is no failure of the handler.
func (d *delivery) unknown(err error) (reason error, settled bool, _ error) {
	d.in.completed.flush()
	d.unsure = true
	if d.in.resolver != nil { // without one the next claim tells
		completed, resolveErr := d.resolve(func(ctx context.Context) (bool, error) {
			return d.in.resolver.Resolve(ctx, d.claim.Key)
		})
		switch {
		case resolveErr != nil:
			return nil, true, d.notNow(errors.Join(err, resolveErr))
		case completed:
			// By this attempt, by another delivery since, or by another message under the
			// same id: the claim knows.
			return d.claimAndRun()
		}
	}
	if d.payloadChanged() {
		return d.failed(errors.Join(errPayloadChanged, err), stores.ClassConduct)
	}
	if d.interruptions++; d.interruptions < maxRuns && !d.timedOut() {
		return err, false, nil
	}
	return d.failed(err, stores.ClassUnknown)
}

// resolve asks until the store knows, as long as the delivery may be held.
func (d *delivery) resolve(ask func(context.Context) (bool, error)) (answer bool, err error) {
	for {
		ctx, cancel := context.WithTimeout(d.ctx, d.in.config.CommitTimeout)
		answer, err = ask(ctx)
		cancel()
		if err == nil {
			return answer, nil
		}
		if !d.hold(err) {
			return false, err
		}
	}
}

func (d *delivery) acked() bool {
	select {
	case <-d.msg.Acked():
		return true
	default:
		return false
	}
}
