package execute

import (
	"context"
	"errors"

	"github.com/millpond-go/millpond/middleware/internal/batch"
	"github.com/millpond-go/millpond/stores"
)

// Batches executes the first attempt of each delivery in a shared transaction where possible, and
// the others in a transaction of their own.
type Batches struct {
	alone     *Transaction
	rows      stores.Failures
	collector *batch.Collector
}

// InBatches returns the mode for one consumer's deliveries. rows is asked about claims that a batch
// did not win.
func InBatches(alone *Transaction, rows stores.Failures, c *batch.Collector) *Batches {
	return &Batches{alone: alone, rows: rows, collector: c}
}

// New implements Mode.
func (b *Batches) New() Execution {
	return &inBatch{mode: b, inTransaction: inTransaction{mode: b.alone}}
}

// inBatch executes one delivery's attempts, the first of them together with others'. A suspect's
// first attempt is not shared: its claim takes over the row that counted it.
type inBatch struct {
	inTransaction

	mode  *Batches
	asked bool
	seat  *batch.Seat
	runs  bool          // in a batch's transaction
	last  stores.Member // the member whose run ended last; nil: it ran alone
}

// Claim implements Execution.
func (x *inBatch) Claim(c stores.Claim) (stores.Verdict, error) {
	again := x.asked
	x.asked = true
	if again || c.Take != 0 || c.OrderKey != nil {
		return x.inTransaction.Claim(c)
	}
	var alone bool
	var v stores.Verdict
	var err error
	if x.seat, alone = x.mode.collector.Join(&c); alone {
		v, err = x.inTransaction.Claim(c)
	} else {
		v, err = x.share(c)
	}
	if err != nil || v.Outcome != stores.Claimed {
		x.leave(false)
	}
	return v, err
}

// share waits for a batch's transaction. This counts as one claim for observers, even if the
// delivery then claims alone.
func (x *inBatch) share(c stores.Claim) (v stores.Verdict, err error) {
	ctx := x.observer.ClaimStarts(x.parent, c)
	x.runs = x.seat.Wait(ctx)
	known := x.runs
	if x.runs {
		v = stores.Verdict{Outcome: stores.Claimed, Server: x.seat.Server()}
	} else if x.seat.Unwon() {
		v, known = x.look(ctx, c)
	}
	if !known {
		return x.begin(x.asks(ctx), &c)
	}
	x.observer.ClaimEnds(ctx, v, nil)
	return v, nil
}

// look looks at a message whose claim a batch did not win. Most are duplicates, and one round trip
// without a transaction shows it. Otherwise look waits until the batch has ended.
func (x *inBatch) look(ctx context.Context, c stores.Claim) (v stores.Verdict, known bool) {
	v, err := x.mode.rows.Look(x.asks(ctx), c.Key, c.Fingerprint)
	if x.patience.stop("ClaimTimeout", err) == nil && v.Outcome == stores.Duplicate {
		return v, true
	}
	x.seat.Ended()
	return v, false
}

func (x *inBatch) asks(ctx context.Context) context.Context {
	return observed{x.patience.start(x.parent, x.inTransaction.mode.bounds.Claim), ctx}
}

// observed is a context with the values of an observer's context.
type observed struct {
	context.Context //nolint:containedctx // this is a context

	values context.Context //nolint:containedctx // only Value uses it
}

// Value implements context.Context.
func (o observed) Value(key any) any { return o.values.Value(key) }

// Context implements Execution.
func (x *inBatch) Context(parent context.Context) context.Context {
	if x.runs {
		return x.seat.Member().Context(parent)
	}
	return x.inTransaction.Context(parent)
}

// Open implements Execution.
func (x *inBatch) Open() bool { return x.runs || x.inTransaction.Open() }

// Finish implements Execution.
func (x *inBatch) Finish(outputs []stores.Output) (end Ended) {
	if !x.runs {
		x.last = nil
		end = x.inTransaction.Finish(outputs)
		x.leave(end.Err == nil)
		return end
	}
	ctx := x.observer.CommitStarts(x.parent)
	x.ends()
	v := x.seat.Keep(ctx, outputs)
	x.observer.CommitEnds(ctx, v.Err)
	return x.left(v, v.Err)
}

// Undo implements Execution.
func (x *inBatch) Undo(cause error) Ended {
	if !x.runs {
		x.last = nil
		end := x.inTransaction.Undo(cause)
		x.leave(false)
		return end
	}
	x.ends()
	return x.left(x.seat.Leave(x.parent), cause)
}

// ends notes the end of the run before calling the seat: a call that exits the goroutine must not
// end the run twice.
func (x *inBatch) ends() { x.runs, x.last = false, x.seat.Member() }

// left says how the delivery's part of a batch ended.
func (x *inBatch) left(v batch.Verdict, cause error) Ended {
	x.leave(v.Err == nil)
	end := Ended{Err: v.Err, Apart: v.Apart}
	if v.Own && !v.Apart {
		if i, ok := x.last.(stores.Interruptible); ok {
			end.Interrupted = i.Interrupted()
		}
		if r, ok := x.last.(stores.Refusing); ok {
			end.Refused = r.Refuses(cause)
		}
	}
	_, escapable := x.last.(stores.Escapable)
	end.Escaped = escapable && errors.Is(v.Err, stores.ErrTxEscaped)
	return end
}

// Escaped implements Execution.
func (x *inBatch) Escaped() (committed bool, err error) {
	escaped, ok := x.last.(stores.Escapable)
	if !ok {
		return x.inTransaction.Escaped()
	}
	ctx, cancel := context.WithTimeout(x.parent, x.inTransaction.mode.bounds.Commit)
	defer cancel()
	return escaped.Escaped(ctx)
}

func (x *inBatch) leave(completed bool) {
	if x.seat != nil {
		x.seat.Close(completed)
	}
}

// Close implements Execution.
func (x *inBatch) Close() {
	x.leave(false)
	x.inTransaction.Close()
}

// Forget implements Execution.
func (x *inBatch) Forget() {
	*x = inBatch{mode: x.mode, inTransaction: inTransaction{mode: x.mode.alone}}
}
