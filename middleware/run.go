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

// run runs the handler in the attempt and ends it. If the commit is known not to
// have happened although nothing failed, it returns the reason to try again.
func (d *delivery) run(attempt stores.Attempt) (reason error, settled bool, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.HandlerTimeout)
	defer cancel()
	d.end.Runs++
	if d.end.Runs == 1 {
		d.metadata = maps.Clone(d.metadata)
	}
	outputs, err := d.call(ctx, attempt)
	switch {
	case err != nil:
		return nil, true, d.undo(attempt, err, d.failed)
	case len(outputs) > 0:
		err = fmt.Errorf("%w (%d returned); the attempt is rolled back", ErrOutputs, len(outputs))
		return nil, true, d.undo(attempt, err, func(err error) error { return d.quarantine(stores.ReasonOutputs, err) })
	}
	acked := d.acked() // asked before the commit: afterwards it would be too late to matter
	err = d.commit(attempt)
	switch {
	case err == nil:
		d.completed()
		if acked {
			d.end.Err = ErrAckedEarly
		}
		return nil, true, nil
	case errors.Is(err, stores.ErrNotCommitted):
		return d.notCommitted(err)
	default:
		return d.unknown(err)
	}
}

// call calls the handler with the attempt's context. A panic rolls back and goes on
// up with its stack; so does Goexit, after which only we can settle the message.
func (d *delivery) call(ctx context.Context, attempt stores.Attempt) (outputs []*message.Message, err error) {
	mark := &running{key: d.claim.Key}
	d.msg.SetContext(attempt.Context(context.WithValue(ctx, runningKey{}, mark)))
	returned := false
	var start time.Time
	if len(d.in.hooks.handlerEnd) > 0 {
		start = time.Now()
	}
	defer func() {
		mark.over.Store(true)
		d.msg.SetContext(d.shutdown)
		if !returned {
			d.abandoned(attempt, recover())
		}
	}()
	outputs, err = d.next(d.msg)
	returned = true
	for _, hook := range d.in.hooks.handlerEnd {
		hook.HandlerEnd(ctx, time.Since(start), err)
	}
	return outputs, err
}

// abandoned ends a delivery whose handler did not return. recovered is nil after
// runtime.Goexit.
func (d *delivery) abandoned(attempt stores.Attempt, recovered any) {
	err := fmt.Errorf("middleware: the handler panicked: %v", recovered)
	if recovered == nil {
		err = errors.New("middleware: the handler exited its goroutine (runtime.Goexit)")
	}
	_ = d.undo(attempt, err, d.failed)
	if d.end.Result == ResultFailed {
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

func (d *delivery) commit(attempt stores.Attempt) error {
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.CommitTimeout)
	defer cancel()
	for _, hook := range d.in.hooks.commitStart {
		ctx = hook.CommitStart(ctx)
	}
	err := attempt.Commit(ctx)
	for _, hook := range d.in.hooks.commitEnd {
		hook.CommitEnd(ctx, err)
	}
	return err
}

func (d *delivery) completed() {
	d.end.Result = ResultCompleted
	d.in.completed.add(d.claim.Key, d.claim.Fingerprint)
}

func (d *delivery) notCommitted(err error) (reason error, settled bool, _ error) {
	return nil, true, d.unlessEnded(err, fmt.Errorf("middleware: %w", err), d.failed)
}

// undo rolls back and goes on as then says. If the rollback fails the connection is
// closed, which ends the attempt too.
func (d *delivery) undo(attempt stores.Attempt, cause error, then func(error) error) error {
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.CommitTimeout)
	defer cancel()
	err := attempt.Rollback(ctx)
	if err != nil {
		d.in.completed.flush()
	}
	return d.unlessEnded(err, cause, then)
}

// unlessEnded goes on as then says, unless ended says that the handler has ended the
// transaction. It may then have committed part of its effects, and the claim with
// them: running it again would double them, and dropping it would lose the rest.
func (d *delivery) unlessEnded(ended, cause error, then func(error) error) error {
	if !errors.Is(ended, stores.ErrTxEnded) || d.in.resolver == nil {
		return then(cause)
	}
	completed, err := d.resolve()
	switch {
	case err != nil:
		return d.notNow(err)
	case completed:
		return d.quarantine(stores.ReasonTxCommitted, errors.Join(cause, ended))
	}
	return then(cause)
}

// unknown finds out what became of a commit. If it did not happen the delivery
// claims again; that is no failure of the handler.
func (d *delivery) unknown(err error) (reason error, settled bool, _ error) {
	d.in.completed.flush()
	if d.in.resolver == nil {
		return err, false, nil // the next claim will tell
	}
	completed, resolveErr := d.resolve()
	switch {
	case resolveErr != nil:
		return nil, true, d.notNow(errors.Join(err, resolveErr))
	case completed:
		d.completed()
		return nil, true, nil
	}
	return err, false, nil
}

// resolve asks until the store knows, as long as the delivery may be held.
func (d *delivery) resolve() (completed bool, err error) {
	for {
		ctx, cancel := context.WithTimeout(d.ctx, d.in.config.CommitTimeout)
		completed, err = d.in.resolver.Resolve(ctx, d.claim.Key)
		cancel()
		if err == nil {
			return completed, nil
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
