package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// End says how a batch ended.
type End struct {
	Size   int // claims it won
	Kept   int // members it committed, or tried to commit
	Unwon  int // claims it did not win
	Failed int // members whose handler failed
	Apart  int // members that need their own transaction
	Late   int // members that did not begin in time, or before the batch was lost

	Interrupted bool   // the database interrupted a member
	Why         string // why members are Apart
	Lost        error  // why nothing was committed, or the commit is unknown
	Took        time.Duration
}

// errHung: a batch is lost because a handler keeps its transaction.
var errHung = errors.New("a handler did not return in time")

// round is one batch on its way from member to member. The first fields are set by its leader before
// anybody is told of the batch. While members run, mu guards turn and end. Whoever sets turn.over ends
// the batch, and alone writes end and result from then on, until done is closed.
type round struct {
	collector *Collector
	batch     stores.Batch
	place     *place
	started   time.Time
	seats     []*Seat // whose claims were won, in the order of arrival

	mu   sync.Mutex
	turn turn
	end  End

	done   chan struct{}
	result error // once done is closed: why nothing was committed; nil also if nobody was kept
}

// turn says which member has the transaction now, and whether another one follows.
type turn struct {
	timer *time.Timer
	next  int       // of round.seats
	begun time.Time // when the current member began
	late  bool      // no other member begins
	over  bool
	lost  error
}

// lead begins a batch for a group.
func (c *Collector) lead(parent context.Context, group []*Seat) {
	r := &round{collector: c, place: c.newPlace(), started: time.Now(), done: make(chan struct{})}
	r.mu.Lock()
	r.turn.timer = time.AfterFunc(c.config.Time, r.timeUp)
	r.mu.Unlock()
	claims := make([]stores.Claim, len(group))
	for i, s := range group {
		claims[i] = s.claim
	}
	ctx, cancel := context.WithTimeout(parent, c.config.Claim)
	defer cancel()
	defer func() {
		if r.batch == nil { // no batch began, or a function of the program panicked
			r.stop()
			r.place.free()
			for _, s := range group {
				s.told <- alone // its own claim meets the error
			}
		}
	}()
	batch, err := c.store.BeginBatch(ctx, claims)
	if err != nil {
		return
	}
	r.batch = batch
	for i, m := range batch.Members() {
		s := group[i]
		if s.round, s.member = r, m; m != nil {
			r.seats = append(r.seats, s)
			continue
		}
		r.end.Unwon++
		s.told <- unwon
	}
	r.end.Size = len(r.seats)
	r.pass(parent)
}

// pass gives the transaction to the next member, or ends the batch.
func (r *round) pass(parent context.Context) {
	r.mu.Lock()
	if r.turn.next < len(r.seats) && !r.turn.late && r.turn.lost == nil {
		s := r.seats[r.turn.next]
		r.turn.next++
		r.turn.begun = time.Now()
		r.mu.Unlock()
		s.told <- runs
		return
	}
	if r.turn.over { // the batch ended while a member hung
		r.mu.Unlock()
		return
	}
	r.turn.over = true
	r.end.Late = len(r.seats) - r.turn.next
	lost, kept := r.turn.lost, r.end.Kept
	r.mu.Unlock()
	r.stop()
	r.finish(parent, lost, kept > 0)
}

// finish ends the transaction. If a function of the program, such as a tracer, panics meanwhile,
// its connection is closed.
func (r *round) finish(parent context.Context, lost error, commit bool) {
	ctx, cancel := context.WithTimeout(parent, r.collector.config.Commit)
	defer cancel()
	result, answered := fmt.Errorf("%w: a function of the program has panicked", stores.ErrCommitUnknown), false
	defer func() {
		if !answered {
			r.batch.Cut()
		}
		r.end.Lost = result
		r.over(result)
	}()
	if lost != nil || !commit {
		if result = lost; lost != nil {
			result = errors.Join(stores.ErrNotCommitted, lost) // a leaving member's error does not say that
		}
		_ = r.batch.Rollback(ctx) // if this fails, its connection is closed
		answered = true
		return
	}
	result = r.batch.Commit(ctx)
	answered = true
	for _, s := range r.seats[:r.turn.next] {
		if result == nil && s.dropped() != nil {
			r.end.Kept--
			r.end.Failed++
		}
	}
}

// stop stops the batch's timer.
func (r *round) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn.timer.Stop()
}

// over tells all members that the batch has ended.
func (r *round) over(result error) {
	r.result = result
	r.end.Took = time.Since(r.started)
	r.collector.adapt(&r.end)
	if r.end.Why != "" {
		r.collector.learn(r.end.Why)
	}
	close(r.done)
	for _, s := range r.seats[r.turn.next:] {
		s.told <- alone
	}
	r.place.free()
	if r.collector.config.Ended != nil {
		r.collector.config.Ended(r.end)
	}
}

// timeUp lets no other member begin. The current member has its handler's time and the time of a
// commit.
func (r *round) timeUp() {
	r.mu.Lock()
	r.turn.late = true
	if left := r.collector.config.Handler + r.collector.config.Commit - time.Since(r.turn.begun); !r.turn.over && !r.turn.begun.IsZero() {
		r.turn.timer = time.AfterFunc(left, r.hang)
	}
	r.mu.Unlock()
}

// hang gives up a batch whose handler keeps its transaction, so that the others need not wait.
func (r *round) hang() {
	r.mu.Lock()
	if r.turn.over {
		r.mu.Unlock()
		return
	}
	r.turn.over, r.turn.lost = true, errors.Join(stores.ErrBatchLost, errHung)
	r.end.Lost, r.end.Late = r.turn.lost, len(r.seats)-r.turn.next
	r.mu.Unlock()
	r.batch.Cut()
	r.over(errors.Join(stores.ErrNotCommitted, r.turn.lost))
}

// hung returns why the batch ended before its member did, or nil.
func (r *round) hung() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.turn.over {
		return nil
	}
	return r.turn.lost
}
