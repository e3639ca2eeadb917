package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// maxRuns is how often the handler is run for one delivery when nothing but the
// database went wrong, before that counts as a failure after all: no message may keep
// a consumer busy for ever, not even one that brings the server down.
const maxRuns = 3

// run runs the handler in the attempt and ends it. If it is known that nothing
// happened and that it was not the handler's fault, it returns the reason to try again.
func (d *delivery) run() (reason error, settled bool, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.HandlerTimeout)
	defer cancel()
	d.end.Runs++
	if d.end.Runs == 1 && len(d.metadata) > 0 {
		d.metadata = maps.Clone(d.metadata)
	}
	outputs, err := d.call(ctx)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("%w of %s", ErrHandlerTimeout, d.in.config.HandlerTimeout)
	}
	switch {
	case err != nil:
		return d.undo(err, d.failed)
	case len(outputs) > 0:
		err = fmt.Errorf("%w (%d returned); the attempt is rolled back", ErrOutputs, len(outputs))
		return d.undo(err, func(err error) error { return d.quarantine(stores.ReasonOutputs, err) })
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
		return d.after(attempt, err, fmt.Errorf("middleware: %w", err), d.failed)
	default:
		return d.unknown(err)
	}
}

// call calls the handler with the attempt's context.
func (d *delivery) call(ctx context.Context) (outputs []*message.Message, err error) {
	mark := &running{Context: ctx, inbox: d.in, key: d.claim.Key}
	d.msg.SetContext(d.attempt.Context(mark))
	var start time.Time
	if len(d.in.hooks.handlerEnd) > 0 {
		start = time.Now()
	}
	defer func() {
		mark.over.Store(true)
		d.msg.SetContext(d.shutdown)
	}()
	outputs, err = d.next(d.msg)
	for _, hook := range d.in.hooks.handlerEnd {
		hook.HandlerEnd(ctx, time.Since(start), err)
	}
	return outputs, err
}

// abandoned ends a delivery whose handler, or a hook, did not return. A panic goes on
// up with its stack; recovered is nil after runtime.Goexit, and then only we can settle
// the message.
func (d *delivery) abandoned(recovered any) {
	err := fmt.Errorf("middleware: the handler panicked: %v", recovered)
	if recovered == nil {
		err = errors.New("middleware: the handler exited its goroutine (runtime.Goexit)")
	}
	if d.attempt != nil {
		_, _, _ = d.undo(err, d.failed)
	} else {
		_ = d.failed(err)
	}
	if d.end.Result != ResultQuarantined {
		d.end.Result = ResultPanicked
	}
	d.end.Err = err
	d.report()
	d.ended()
	if recovered == nil {
		d.msg.Nack() // nobody else would
		return
	}
	panic(recovered)
}

func (d *delivery) commit() error {
	ctx := d.patience.start(d.ctx, d.in.config.CommitTimeout)
	defer d.patience.stop()
	for _, hook := range d.in.hooks.commitStart {
		ctx = hook.CommitStart(ctx)
	}
	attempt := d.attempt
	d.attempt = nil
	err := attempt.Commit(ctx)
	for _, hook := range d.in.hooks.commitEnd {
		hook.CommitEnd(ctx, err)
	}
	return err
}

// undo rolls back and goes on as then says. If the rollback fails the connection is
// closed, which ends the attempt too.
func (d *delivery) undo(cause error, then func(error) error) (reason error, settled bool, err error) {
	attempt := d.attempt
	d.attempt = nil
	rollback := attempt.Rollback(d.patience.start(d.ctx, d.in.config.CommitTimeout))
	d.patience.stop()
	if rollback != nil {
		d.in.completed.flush()
	}
	return d.after(attempt, rollback, cause, then)
}

// after goes on as then says when an attempt was not committed, with two exceptions.
//
// If the handler went around its transaction it may have committed part of its effects,
// and the claim with them: running it again would double them, and dropping it would
// lose the rest. And what was the database's doing is tried again.
func (d *delivery) after(attempt stores.Attempt, ended, cause error, then func(error) error) (reason error, settled bool, _ error) {
	d.restore()
	if e, ok := attempt.(stores.Escapable); ok && errors.Is(ended, stores.ErrTxEscaped) {
		committed, err := d.resolve(e.Escaped)
		switch {
		case err != nil:
			return nil, true, d.notNow(err)
		case committed:
			return nil, true, d.quarantine(stores.ReasonTxCommitted, errors.Join(cause, ended))
		}
	}
	if i, ok := attempt.(stores.Interruptible); ok && d.end.Runs < maxRuns {
		if err := i.Interrupted(); err != nil {
			return err, false, nil
		}
	}
	return nil, true, then(cause)
}

// restore undoes what the handler made of its message, so that a next try, by us or by
// a Retry around the inbox, is given what arrived. (Bytes changed in place are not
// restored.)
func (d *delivery) restore() {
	d.msg.UUID, d.msg.Payload = d.uuid, d.payload
	d.msg.Metadata = maps.Clone(d.metadata)
}

func (d *delivery) completed() {
	d.end.Result = ResultCompleted
	d.in.completed.add(d.claim.Key, d.claim.Fingerprint)
}

// unknown finds out what became of a commit. If it did not happen the delivery
// claims again; that is no failure of the handler.
func (d *delivery) unknown(err error) (reason error, settled bool, _ error) {
	d.in.completed.flush()
	if d.in.resolver == nil {
		return err, false, nil // the next claim will tell
	}
	completed, resolveErr := d.resolve(func(ctx context.Context) (bool, error) {
		return d.in.resolver.Resolve(ctx, d.claim.Key)
	})
	switch {
	case resolveErr != nil:
		return nil, true, d.notNow(errors.Join(err, resolveErr))
	case completed:
		// By this attempt, by another delivery since, or by another message under the
		// same id: the claim knows.
		d.claim.Look = true
		return d.claimAndRun()
	case d.end.Runs >= maxRuns:
		return nil, true, d.failed(err)
	}
	return err, false, nil
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

// failed is the answer for a handler that failed: held for a backoff, then nacked.
// If it has acked the message itself nobody will deliver it again, so it is kept.
func (d *delivery) failed(err error) error {
	if d.acked() {
		return d.quarantine(stores.ReasonAckedEarly, fmt.Errorf("%w: %w", ErrAckedEarly, err))
	}
	d.end.Result = ResultFailed
	brokers.SetGiveBack(d.shutdown, brokers.GiveBack{Failed: true})
	d.backOff()
	return err
}

func (d *delivery) acked() bool {
	select {
	case <-d.msg.Acked():
		return true
	default:
		return false
	}
}
