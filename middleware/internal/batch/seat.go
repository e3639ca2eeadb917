package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// Verdict is a member's outcome.
type Verdict struct {
	Err   error // nil: committed, with proof
	Apart bool  // its message has not failed: it runs again, alone
	Own   bool  // Err is the member's own: ask the member
}

// Keep keeps the effects of a handler that succeeded, gives the transaction to the next member, and
// waits until the batch has ended.
func (s *Seat) Keep(parent context.Context, outputs []stores.Output) Verdict {
	r := s.round
	ctx := &bounded{parent: parent, after: s.collector.config.Commit}
	defer ctx.end()
	if hung := r.hung(); hung != nil {
		return Verdict{Err: errors.Join(stores.ErrNotCommitted, hung), Apart: true}
	}
	err := r.settle(parent, s, func() error {
		if len(outputs) > 0 {
			if err := s.member.Emit(outputs); err != nil && !errors.Is(err, stores.ErrTxClosed) { // Keep says why
				return errors.Join(stores.ErrNotCommitted, err, s.member.Leave(ctx))
			}
		}
		return s.member.Keep(ctx)
	})
	switch {
	case errors.Is(err, stores.ErrNotShared):
		return Verdict{Err: err, Apart: true}
	case err != nil:
		return r.failed(err)
	case r.result == nil:
		if err := s.dropped(); err != nil {
			return r.failed(err)
		}
		return Verdict{}
	case errors.Is(r.result, stores.ErrCommitUnknown):
		return Verdict{Err: r.result}
	}
	return Verdict{Err: r.result, Apart: true}
}

// dropped returns why the member is not among the committed ones, or nil.
func (s *Seat) dropped() error {
	if d, ok := s.member.(stores.Droppable); ok {
		return d.Dropped()
	}
	return nil
}

// Leave undoes a handler's effects, gives the transaction to the next member, and waits until the
// batch has ended, which frees the key.
func (s *Seat) Leave(parent context.Context) Verdict {
	r := s.round
	ctx, cancel := context.WithTimeout(parent, s.collector.config.Commit)
	defer cancel()
	if hung := r.hung(); hung != nil {
		return Verdict{Err: hung, Apart: true}
	}
	err := r.settle(parent, s, func() error { return cmp.Or(s.member.Leave(ctx), errLeft) })
	if errors.Is(err, errLeft) {
		err = nil
	}
	return r.failed(err)
}

// failed is the verdict on a member that failed. Rows of other members may be the reason. If those
// are not committed, the failure does not count, whoever lost the batch.
func (r *round) failed(err error) Verdict {
	return Verdict{Err: err, Apart: r.result != nil || errors.Is(err, stores.ErrNotShared), Own: true}
}

var (
	errLeft     = errors.New("it has left")
	errPanicked = fmt.Errorf("%w: a function of the program has panicked", stores.ErrBatchLost)
)

// settle ends a member's run, gives the transaction to the next one, and waits until the batch has
// ended.
func (r *round) settle(parent context.Context, s *Seat, end func() error) error {
	err := errPanicked
	defer func() {
		r.note(s, err)
		r.pass(parent)
		<-r.done
	}()
	err = end()
	return err
}

// note counts a member that had the transaction.
func (r *round) note(s *Seat, err error) {
	var interrupted bool
	if i, ok := s.member.(stores.Interruptible); ok && err != nil {
		interrupted = i.Interrupted() != nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn.over { // the member was not counted
		return
	}
	r.end.Interrupted = r.end.Interrupted || interrupted
	if errors.Is(err, stores.ErrBatchLost) {
		r.turn.lost = err
		r.end.Lost = err
	}
	switch {
	case err == nil:
		r.end.Kept++
	case errors.Is(err, stores.ErrNotShared):
		r.end.Apart++
		if why, ok := errors.AsType[*stores.NotSharedError](err); ok {
			r.end.Why = why.What
		}
	default:
		r.end.Failed++
	}
}
