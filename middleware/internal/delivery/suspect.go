package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// A message can end the process that runs it, and then nobody is left to count. So the
// attempt of a delivery that may not be the first is counted before it begins. A first
// delivery, which is nearly all of them, pays nothing for it.

// look sees where a suspect message stands, and counts the attempt that is about to begin.
func (d *Delivery) look() next {
	if d.arrival.Retry == nil {
		if n, over := d.judged(); over {
			return n
		}
	}
	if d.leased() != nil && d.row.counted != 0 && d.row.holder == "" { // by a worker, for its codec
		if err := d.unconfirmed(); err != nil {
			return d.fail(err, stores.ClassUnconfirmed)
		}
		if err := d.startAgain(); err != nil {
			return heldFor(d.unanswered(err))
		}
	}
	d.row.take = d.row.state.Version
	if d.row.counted == 0 { // else in an earlier turn of this delivery
		return d.count()
	}
	if !d.mayRun() {
		return heldFor(errAlone)
	}
	return next{state: claiming}
}

// judged asks where the message stands. It reports true, with what is to be done, unless an
// attempt may begin.
func (d *Delivery) judged() (next, bool) {
	asked := time.Now()
	v, err := d.ask()
	if err != nil {
		return heldFor(d.unanswered(err)), true
	}
	d.turn.Answered()
	if d.core.Completed.Answered(v.Server, asked) {
		return d.registerAgain(), true
	}
	may, err := d.mayBegin(v)
	if err == nil && may && d.row.state.Version == 0 { // the claim to come has a row, and does not tell
		v.PurgedThrough, err = d.arrival.Consumer.Forgotten(d.arrival.Claim.Time)
		if !v.PurgedThrough.IsZero() {
			v.Outcome, may = stores.Stale, false
		}
	}
	switch {
	case err != nil:
		return heldFor(d.unanswered(err)), true
	case !may:
		return d.act(v), true
	}
	d.end.Unfinished, d.row.read = true, asked
	return next{}, false
}

// mayRun waits until the attempt may begin. One that may have ended a process runs alone, so
// that it is known what ends the next one: beside it no other suspect runs. Under a lease
// every attempt is counted first, and one that is no suspect waits for none.
func (d *Delivery) mayRun() bool {
	switch {
	case d.row.mayCrash:
		return d.turn.Alone()
	case d.row.suspect:
		return d.turn.Beside()
	}
	return true
}

func (d *Delivery) ask() (stores.Verdict, error) {
	ctx, cancel := d.asks()
	defer cancel()
	o := d.arrival.Observer
	ctx = o.LookStarts(ctx, d.arrival.Claim.Key)
	v, err := d.core.Rows.Look(ctx, d.arrival.Claim.Key, d.arrival.Claim.Fingerprint)
	o.LookEnds(ctx, v, err)
	return v, err
}

// mayBegin reports whether the row lets this delivery begin an attempt, and takes over
// what it says.
func (d *Delivery) mayBegin(v stores.Verdict) (bool, error) {
	seen, row := v.Failure, &d.row
	switch {
	case v.Outcome != stores.Claimable && v.Outcome != stores.Deferred:
		return false, nil
	case row.counted != 0 && seen.Version == row.counted: // deferred by this delivery, for others
		row.state.Age = seen.Age
		if d.leased() != nil && v.Outcome == stores.Claimable {
			return true, d.startAgain() // its lease has expired before it began
		}
	case seen.Presumed && row.started != 0 && seen.Attempts == row.started: // its record was not answered
		if l := d.leased(); l != nil {
			switch owns, err := l.Owns(d.heldLease(seen.Version)); {
			case err != nil:
				return false, err
			case !owns:
				row.started = 0
				return false, ErrInFlight
			}
		}
		row.counted, row.state = seen.Version, seen
	case v.Outcome == stores.Deferred:
		return false, nil
	default:
		row.counted, row.state = 0, seen
	}
	return true, nil
}

// count counts the attempt that is about to begin, unless the budget is gone.
func (d *Delivery) count() next {
	row := &d.row
	row.mayCrash, row.suspect = row.state.Presumed && !d.besideOthers(), row.suspect || row.state.Presumed
	if err := d.unconfirmed(); err != nil {
		d.row.spent = true // none was made
		return d.fail(err, stores.ClassUnconfirmed)
	}
	if d.arrival.Policy.Gone(row.state) {
		if d.arrival.Retry == nil && d.core.Keep.Codec != nil {
			return d.crashedEncoding()
		}
		return d.crashed()
	}
	if !d.mayRun() {
		return heldFor(errAlone)
	}
	if err := d.recordStart(); err != nil {
		if errors.Is(err, stores.ErrChanged) {
			return heldFor(d.unanswered(ErrInFlight))
		}
		if row.started = row.state.Attempts; !d.besideOthers() {
			row.started++
		}
		return heldFor(d.unanswered(err))
	}
	d.row.take = row.state.Version
	return next{state: claiming}
}

// besideOthers reports whether a message whose lease has expired is taken over beside others.
// Under a lease the first attempt is on record, and most that end with their process are
// innocent. So that one is given back, and the next is the first that may be decided by.
func (d *Delivery) besideOthers() bool {
	s := &d.row.state
	return d.leased() != nil && budget.Shared(*s) && s.Uncounted == 0
}

// crashed fails a message whose last attempt has ended the process.
func (d *Delivery) crashed() next {
	d.row.spent = true
	return d.fail(fmt.Errorf("%w, in the last of %d attempts", errCrashed, d.row.state.Attempts), stores.ClassCrash)
}

// maxCodecStarts is how often a codec is asked for a message that has ended its process too
// often: it may be what has ended it, and that is counted, too.
const maxCodecStarts = 3

// crashedEncoding is crashed where a codec is asked before the failure can be recorded.
func (d *Delivery) crashedEncoding() next {
	limit, s := d.arrival.Policy.Attempts, &d.row.state
	if s.Attempts >= limit+maxCodecStarts {
		d.refused.endsProcess = true
	} else if err := d.recordStart(); err != nil {
		if errors.Is(err, stores.ErrChanged) {
			err = ErrInFlight
		}
		return heldFor(d.unanswered(err))
	}
	s.Attempts, d.row.counted = limit, 0 // what was counted beyond is not the handler's
	s.Presumed = false                   // and whose end is not known is this one
	return d.crashed()
}

// CountDecoding counts the attempt of a suspect message that a codec has to decode before its
// delivery begins: the codec may be what has ended the process. One that has spent its
// attempts is decoded for its copy alone, maxCodecStarts times. It reports false if the
// message is not to be begun with now.
func (c *Core) CountDecoding(ctx context.Context, r *Retry, p *Policy) bool {
	row := &r.Row
	if row.Content.Codec == "" || r.uncopied() || !row.Suspect && !row.State.Presumed {
		return true
	}
	r.Spent = p.Gone(row.State)
	if r.Spent && (c.Letters == nil || row.State.Attempts >= p.Attempts+maxCodecStarts) {
		row.State.Attempts, r.Unreadable = p.Attempts, errEndsProcess
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Times.Record)
	defer cancel()
	s := &row.State
	r.presumed = s.Presumed
	class, lent, why := presumption(s)
	f := r.pendingFailure(p, class, why)
	f.DueIn, f.Start = r.Reserve, true
	f.Attempts++
	version, err := c.Rows.Record(ctx, *f)
	if err != nil {
		return false
	}
	s.Version, s.Presumed, s.Class, r.Counted, r.Lent = version, true, class, !r.Spent, lent
	if s.Attempts++; r.Spent {
		s.Attempts = p.Attempts // what was counted beyond is not the handler's
	}
	return true
}

// UncountDecoding takes that back, of a message that is not begun after all.
func (c *Core) UncountDecoding(ctx context.Context, r *Retry, p *Policy) {
	if !r.Counted {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Times.Claim)
	defer cancel()
	f := r.pendingFailure(p, stores.ClassInterrupted, errStopped)
	f.Attempts -= 1 + r.Lent
	f.Uncounted++
	_, _ = c.Rows.Record(ctx, *f) // or it stays counted
}

var errStopped = errors.New("middleware: the retry worker stopped before the attempt began")

func (r *Retry) pendingFailure(p *Policy, class stores.Class, cause error) *stores.Failure {
	f := pendingFailure(&r.Row.State, p, class, cause.Error())
	f.Key, f.Fingerprint, f.TraceParent = r.Row.Key, r.Row.Fingerprint, r.Row.TraceParent
	f.Placement = stores.PlacementParked
	return f
}

// presumption is what stands if a process ends in the attempt that is about to begin. The
// first one runs beside other suspects, any of which may end it: it does not decide, and is
// given back when a later one, alone, ends in a known way. If that one ends its process,
// too, the first is taken for this message's.
func presumption(s *stores.FailureState) (class stores.Class, lent int, why error) {
	switch {
	case !s.Presumed:
		return stores.ClassInterrupted, 0, errShared
	case budget.Shared(*s):
		lent = 1
	}
	return stores.ClassCrash, lent, errCrashed
}

// recordStart counts the attempt. If it is the last thing that is heard of it, the
// record stands as it is.
//
// Until the attempt begins the message is not due for others: another delivery of it
// would count itself, and each the other, while none of them runs.
func (d *Delivery) recordStart() error {
	class, lent, why := presumption(&d.row.state)
	beside := d.besideOthers()
	if beside {
		class, lent, why = stores.ClassInterrupted, 0, errShared
	}
	f := d.newFailure(class, why.Error())
	d.row.lent = lent
	f.Placement, f.Start = stores.PlacementRedelivered, true
	if f.Attempts++; beside {
		f.Attempts, f.Uncounted = f.Attempts-1, f.Uncounted+1
	}
	if r := d.arrival.Retry; r != nil {
		f.Placement, f.DueIn = stores.PlacementParked, r.Reserve
	} else {
		f.DueIn = d.core.Times.Claim + 2*d.core.Times.MaxPause
		d.addOrigin(f)
	}
	if d.leased() != nil {
		return d.startLease(f)
	}
	return d.write(f)
}

// uncount takes back an attempt that was counted before it began and then neither
// failed nor succeeded. If that cannot be written down within Times.Claim it stays
// counted.
func (d *Delivery) uncount(cause error) {
	if d.row.counted == 0 {
		return
	}
	f := d.newFailure(stores.ClassInterrupted, text.Of(cause))
	f.Version, f.Placement = d.row.counted, stores.PlacementRedelivered
	f.Attempts--
	f.Uncounted++
	if d.arrival.Retry != nil {
		f.Placement = stores.PlacementParked
	}
	ctx, cancel := d.asks()
	defer cancel()
	times := &d.core.Times
	for wait := times.MinPause; ; wait = min(2*wait, times.MaxPause) {
		err := d.writeWithin(ctx, f)
		if err == nil || !concernsStore(err) || !pause.Sleep(ctx, pause.Jitter(wait)) {
			return
		}
	}
}
