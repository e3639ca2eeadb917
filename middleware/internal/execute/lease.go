package execute

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
)

// ErrLeaseLost: another holder has the lease, or it was broken.
var ErrLeaseLost = errors.New("middleware: the lease of the message was lost")

// Terms are the settings of a handler's leases.
type Terms struct {
	TTL time.Duration // how long a lease lives without renewal
	// Stop: an effect that may have happened is not tried again.
	Stop bool
	// KeyLifetime is how long after its first attempt a message may be run; 0: any time.
	KeyLifetime time.Duration
}

// Leased is an execution whose claim is a lease. The lease is on record, with its attempt counted,
// before Claim. If Finish fails, the effect has happened and only its completion is missing: Finish
// may be called again.
type Leased interface {
	Execution
	Terms() Terms

	// Holder returns a unique name for the next lease.
	Holder() string
	// Holds notes that a request made at asked recorded this holder's lease. first: the message had
	// no record before.
	Holds(l stores.HeldLease, asked time.Time, first bool)
	// Owns reports whether a start whose answer was lost was recorded. If so, it renews the lease.
	Owns(l stores.HeldLease) (bool, error)
}

// Lease executes attempts whose effect is outside the database.
type Lease struct {
	store       stores.LeaseInbox
	bounds      Bounds
	terms       Terms
	completions *Transaction
}

// UnderLeases returns the mode for a store.
func UnderLeases(store stores.LeaseInbox, b Bounds, t Terms) *Lease {
	return &Lease{store: store, bounds: b, terms: t, completions: InTransactions(store, b)}
}

// New implements Mode.
func (l *Lease) New() Execution {
	return &underLease{mode: l, inTransaction: inTransaction{mode: l.completions}}
}

// underLease executes one delivery's attempts. Its transaction is that of a completion.
type underLease struct {
	inTransaction

	mode     *Lease
	observer Observer
	claim    stores.Claim
	held     stores.HeldLease
	until    time.Time // when the lease expires, at the latest
	run      *run      // nil: no run has begun under the lease
	failures int       // failures of the program's functions for the completion
	first    bool      // no step can be on record
}

var _ Leased = (*underLease)(nil)

// Terms implements Leased.
func (x *underLease) Terms() Terms { return x.mode.terms }

// Holder implements Leased.
func (x *underLease) Holder() string { return newHolder() }

// Holds implements Leased.
func (x *underLease) Holds(l stores.HeldLease, asked time.Time, first bool) {
	x.held, x.until, x.run, x.failures, x.first = l, asked.Add(x.mode.terms.TTL), nil, 0, first
}

// Owns implements Leased.
func (x *underLease) Owns(l stores.HeldLease) (bool, error) {
	asked := time.Now()
	switch err := x.extend(x.parent, l); {
	case errors.Is(err, stores.ErrChanged):
		return false, nil
	case err != nil:
		return false, err
	}
	x.Holds(l, asked, false)
	return true, nil
}

// extend renews the lease once.
func (x *underLease) extend(parent context.Context, l stores.HeldLease) error {
	ctx, cancel := context.WithTimeout(parent, x.mode.bounds.Claim)
	defer cancel()
	return x.mode.store.Extend(ctx, l, x.mode.terms.TTL) //nolint:wrapcheck // the machine says what it means
}

// Start implements Execution.
func (x *underLease) Start(parent context.Context, o Observer) {
	x.observer = o
	x.inTransaction.Start(parent, unobserved{})
}

// Claim implements Execution. The lease is already held, but may have expired, and only a claim
// from the store finds what else forbids a run.
func (x *underLease) Claim(c stores.Claim) (v stores.Verdict, err error) {
	ctx := x.observer.ClaimStarts(x.parent, c)
	v, err = x.begin(c)
	x.observer.ClaimEnds(ctx, v, err)
	return v, err
}

func (x *underLease) begin(c stores.Claim) (v stores.Verdict, err error) {
	if c.OrderKey != nil {
		if v, err = x.inTransaction.Claim(c); err != nil || v.Outcome != stores.Claimed {
			return v, err
		}
		if end := x.inTransaction.Undo(nil); end.Err != nil {
			return stores.Verdict{}, fmt.Errorf("%w: %w", stores.ErrUnavailable, end.Err)
		}
		c.OrderKey = nil
	}
	if time.Until(x.until) < x.mode.terms.TTL/2 {
		switch owns, err := x.Owns(x.held); {
		case err != nil:
			return stores.Verdict{}, err
		case !owns:
			return stores.Verdict{Outcome: stores.InFlight}, nil
		}
	}
	x.claim, v.Outcome = c, stores.Claimed
	x.run, x.first = newRun(x.until, x.journal()), false
	return v, nil
}

func (x *underLease) journal() *journal {
	j := &journal{store: x.mode.store, lease: x.held, parent: x.parent, bound: x.mode.bounds.Claim}
	if x.first {
		j.recorded = map[string][]byte{}
	}
	return j
}

// Context implements Execution. The handler's context ends before the lease does. The lease is
// renewed until parent ends.
func (x *underLease) Context(parent context.Context) context.Context {
	held := x.held
	return x.run.begin(parent, renewal{ttl: x.mode.terms.TTL, extend: func(ctx context.Context) error { return x.extend(ctx, held) }, parent: x.parent})
}

// Open implements Execution.
func (x *underLease) Open() bool { return x.run != nil && !x.run.isOver() }

// Undo implements Execution. A lease that was not renewed may still be this holder's.
func (x *underLease) Undo(error) Ended {
	x.until = x.run.end()
	end := Ended{Cut: x.run.cut()}
	if end.Cut != nil || !time.Now().Before(x.until) {
		end.Lost, _ = x.overtaken()
	}
	return end
}

// Finish implements Execution.
func (x *underLease) Finish(outputs []stores.Output) Ended {
	x.until = x.run.end()
	ctx := x.observer.CommitStarts(x.parent)
	end := x.complete(outputs)
	x.observer.CommitEnds(ctx, end.Err)
	end.Interrupted = nil // the effect was not interrupted: the handler need not run again
	end.Happened = true
	return end
}

// maxProgramFailures is how often the program's functions for the completion, or the conditions on
// their writes, may fail before the attempt has failed.
const maxProgramFailures = 3

// complete tries once to complete the message.
func (x *underLease) complete(outputs []stores.Output) Ended {
	x.renew()
	c := x.claim
	c.Take = x.held.Version
	v, err := x.inTransaction.Claim(c)
	switch {
	case err != nil:
		return tryAgain(err)
	case v.Outcome != stores.Claimed:
		return x.refused(v)
	}
	if err := x.writes(); err != nil {
		end := x.inTransaction.Undo(err)
		x.failures++
		again := end.Interrupted != nil || x.failures < maxProgramFailures && !end.Refused && !end.Escaped
		end.Err, end.Again = fmt.Errorf("%w: %w", stores.ErrNotCommitted, errors.Join(err, end.Err)), again
		return end
	}
	end := x.inTransaction.Finish(outputs)
	end.Server = v.Server
	again := end.Interrupted != nil
	if errors.Is(end.Err, stores.ErrTxContended) {
		x.failures++
		again = x.failures < maxProgramFailures
	}
	end.Again = again && errors.Is(end.Err, stores.ErrNotCommitted) && !end.Escaped
	return end
}

func notCompleted(err error) Ended {
	return Ended{Err: fmt.Errorf("%w: %w", stores.ErrNotCommitted, err)}
}

func tryAgain(err error) Ended {
	end := notCompleted(err)
	end.Again = true
	return end
}

// refused tells a lost lease from a row that is locked for a moment.
func (x *underLease) refused(v stores.Verdict) Ended {
	if v.Outcome == stores.InFlight {
		switch lost, err := x.overtaken(); {
		case err != nil:
			return tryAgain(err)
		case !lost:
			return tryAgain(errors.New("middleware: the row of the message is locked"))
		}
	}
	end := notCompleted(ErrLeaseLost)
	end.Lost = true
	return end
}

// overtaken reports whether the row has another version than the lease.
func (x *underLease) overtaken() (bool, error) {
	ctx, cancel := context.WithTimeout(x.parent, x.mode.bounds.Claim)
	defer cancel()
	seen, err := x.mode.store.Look(ctx, x.claim.Key, x.claim.Fingerprint)
	return err == nil && seen.Failure.Version != x.held.Version, err //nolint:wrapcheck // the machine says what it means
}

// writes runs the functions that the handler gave to OnComplete.
func (x *underLease) writes() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.run.context()), x.mode.bounds.Commit)
	defer cancel()
	ctx = x.inTransaction.Context(ctx)
	for _, f := range x.run.completions() {
		if err := callback.Apart("a function for OnComplete", func() error { return f(ctx) }); err != nil {
			return err //nolint:wrapcheck // the program's own error
		}
	}
	return nil
}

// renew renews the lease between tries to complete, as long as the handler may run. Even without
// renewal the message can be completed, until another holder takes it over.
func (x *underLease) renew() {
	asked := time.Now()
	if ttl := x.mode.terms.TTL; x.until.Sub(asked) < ttl-ttl/renewals && asked.Before(x.run.deadline()) {
		if x.extend(x.parent, x.held) == nil {
			x.until = asked.Add(ttl)
		}
	}
}

// Forget implements Execution.
func (x *underLease) Forget() {
	*x = underLease{mode: x.mode, inTransaction: inTransaction{mode: x.mode.completions}}
}

// unobserved observes the calls of a completion, which is observed as a whole.
type unobserved struct{}

func (unobserved) ClaimStarts(ctx context.Context, _ stores.Claim) context.Context { return ctx }
func (unobserved) ClaimEnds(context.Context, stores.Verdict, error)                {}
func (unobserved) CommitStarts(ctx context.Context) context.Context                { return ctx }
func (unobserved) CommitEnds(context.Context, error)                               {}
