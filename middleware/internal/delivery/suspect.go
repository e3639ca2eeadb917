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

// A message can end the process that runs it, and then its attempt is not counted. So the attempt
// of a delivery that may be a redelivery is counted before it begins. First deliveries, which are
// nearly all, do not pay for this.

// look looks up a suspect message, and counts the attempt that is about to begin.
func (d *Delivery) look() next {
	if d.arrival.Retry == nil || d.row.started != (start{}) {
		if n, over := d.judged(); over {
			return n
		}
	}
	if d.leased() != nil && d.row.counted != 0 && d.row.holder == "" { // counted by a worker before Decode
		if err := d.unconfirmed(); err != nil {
			return d.fail(err, stores.ClassUnconfirmed)
		}
		if err := d.startAgain(); err != nil {
			return heldFor(d.unanswered(err))
		}
	}
	d.row.take = d.row.state.Version
	switch {
	case d.row.codec:
		return d.crashedEncoding()
	case d.row.counted == 0: // otherwise an earlier turn of this delivery counted it
		return d.count()
	}
	if !d.mayRun() {
		return heldFor(errAlone)
	}
	return next{state: claiming}
}

// judged looks the message up. It reports true, with the next state, unless an attempt may begin.
func (d *Delivery) judged() (next, bool) {
	asked := time.Now()
	v, n, failed := d.lookUp()
	if failed {
		return n, true
	}
	may, err := d.mayBegin(v)
	if err == nil && may && d.row.state.Version == 0 { // the claim will find the row of the count, and not judge the message's age
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

// mayRun waits until the attempt may begin. A message that may have ended a process runs with no
// other suspect beside it, so that the next end has one cause. Under a lease every attempt is
// counted first, and one that is no suspect does not wait.
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

// mayBegin reports whether the row lets this delivery begin an attempt, and takes over the row's
// state.
func (d *Delivery) mayBegin(v stores.Verdict) (bool, error) {
	seen, row, reserved := v.Failure, &d.row, d.arrival.Retry != nil
	if !d.pending(v) {
		return false, nil
	}
	own, err := d.adopt(seen)
	switch {
	case own || err != nil:
		return own, err
	case row.counted != 0 && seen.Version == row.counted: // this delivery has counted its attempt, which keeps others waiting
		row.state.Age = seen.Age
		if d.leased() != nil && (v.Outcome == stores.Claimable || row.started != start{}) {
			return true, d.startAgain() // its lease expired before the attempt began, or a start that renews it got no answer
		}
	case v.Outcome == stores.Deferred, reserved && seen.Version != row.state.Version: // another worker has reserved it since
		return false, nil
	default:
		row.counted, row.state = 0, seen
	}
	return true, nil
}

// pending reports whether the row is this message's, and lets it run now or later. A row with another
// fingerprint may look like this delivery's start.
func (d *Delivery) pending(v stores.Verdict) bool {
	return v.Outcome == stores.Claimable || v.Outcome == stores.Deferred || v.Outcome == stores.Parked && d.arrival.Retry != nil
}

// adopt takes over a pending row if it is what this delivery's start has written, whose answer was
// lost.
func (d *Delivery) adopt(seen stores.FailureState) (bool, error) {
	row := &d.row
	if row.started.overtaken(seen) {
		row.started = start{}
	}
	if !row.started.wrote(seen) {
		return false, nil
	}
	if l := d.leased(); l != nil {
		owns, err := l.Owns(d.heldLease(seen.Version))
		if err != nil {
			return false, err
		}
		if !owns {
			row.started = start{}
			return false, ErrInFlight
		}
	}
	row.counted, row.codec, row.state, row.started = seen.Version, row.started.codec, seen, start{}
	return true, nil
}

// count counts the attempt that is about to begin, unless the budget is gone.
func (d *Delivery) count() next {
	row := &d.row
	row.mayCrash, row.suspect = row.state.Presumed && !d.besideOthers(), row.suspect || row.state.Presumed
	if err := d.unconfirmed(); err != nil {
		d.row.spent = true // no attempt was made
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
	if begun, err := d.recordStart(); err != nil {
		if errors.Is(err, stores.ErrChanged) {
			return heldFor(d.unanswered(ErrInFlight))
		}
		row.started = begun
		return heldFor(d.unanswered(err))
	}
	d.row.take = row.state.Version
	return next{state: claiming}
}

// besideOthers reports whether a first expired lease is taken over. Its holder's process may have
// died through another message, so that attempt does not count.
func (d *Delivery) besideOthers() bool {
	s := &d.row.state
	return d.leased() != nil && budget.Shared(*s) && s.Uncounted == 0
}

// crashed fails a message whose last attempt ended its process.
func (d *Delivery) crashed() next {
	d.row.spent = true
	return d.fail(fmt.Errorf("%w, in the last of %d attempts", errCrashed, d.row.state.Attempts), stores.ClassCrash)
}

// maxCodecStarts is how often a codec is called for a message that ended its process too often. The
// codec may be the cause, so its calls are counted too.
const maxCodecStarts = 3

// crashedEncoding is crashed for a codec that must be called before the failure is recorded.
func (d *Delivery) crashedEncoding() next {
	limit, s := d.arrival.Policy.Attempts, &d.row.state
	switch {
	case d.row.counted != 0: // by a start whose answer was lost
	case s.Attempts >= limit+maxCodecStarts:
		d.refused.endsProcess = true
	default:
		if begun, err := d.recordStart(); errors.Is(err, stores.ErrChanged) {
			return heldFor(d.unanswered(ErrInFlight))
		} else if err != nil {
			d.row.started, d.row.started.codec = begun, true
			return heldFor(d.unanswered(err))
		}
	}
	s.Attempts, d.row.counted, d.row.codec = limit, 0, false // attempts beyond the limit are not the handler's
	s.Presumed = false                                       // this call returned: no attempt has an unknown end any more
	return d.crashed()
}

// CountDecoding counts a suspect message's attempt before a codec decodes the message, because the
// codec may have ended the process. A message without attempts left is decoded only for its copy,
// maxCodecStarts times. It reports false if the message must not begin now.
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
	asked := time.Now()
	version, err := c.recordCount(ctx, f)
	if err != nil {
		return false
	}
	if s.Attempts+s.Uncounted == 0 { // until now the message only waited
		s.Age, r.Read = 0, asked
	}
	s.Version, s.Presumed, s.Class, r.Counted, r.Lent = version, true, class, !r.Spent, lent
	if s.Attempts++; r.Spent {
		s.Attempts = p.Attempts // attempts beyond the limit are not the handler's
	}
	return true
}

// recordCount writes the count. If the answer is lost, the row shows whether it was written: an
// attempt that did not begin must not count.
func (c *Core) recordCount(ctx context.Context, f *stores.Failure) (int64, error) {
	version, err := c.Rows.Record(ctx, *f)
	unknown := concernsStore(err)
	for wait := c.Times.MinPause; unknown && err != nil && pause.Sleep(ctx, pause.Jitter(wait)); wait = min(2*wait, c.Times.MaxPause) {
		v, lookErr := c.Rows.Look(ctx, f.Key, f.Fingerprint)
		switch seen := v.Failure; {
		case lookErr != nil:
		case startOf(f).wrote(seen):
			return seen.Version, nil
		case seen.Version != f.Version:
			return 0, err
		default:
			version, err = c.Rows.Record(ctx, *f)
		}
	}
	return version, err
}

// UncountDecoding undoes CountDecoding for a message that did not begin.
func (c *Core) UncountDecoding(ctx context.Context, r *Retry, p *Policy) {
	if !r.Counted {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Times.Claim)
	defer cancel()
	f := r.pendingFailure(p, stores.ClassInterrupted, errStopped)
	f.Attempts -= 1 + r.Lent
	f.Uncounted++
	_, _ = c.Rows.Record(ctx, *f) // if this fails it stays counted
}

var errStopped = errors.New("middleware: the retry worker stopped before the attempt began")

func (r *Retry) pendingFailure(p *Policy, class stores.Class, cause error) *stores.Failure {
	f := pendingFailure(&r.Row.State, p, class, cause.Error())
	f.Key, f.Fingerprint, f.TraceParent = r.Row.Key, r.Row.Fingerprint, r.Row.TraceParent
	f.Placement = stores.PlacementParked
	return f
}

// presumption is what the row says if the process ends in the attempt that is about to begin. The
// first such attempt runs beside other suspects, any of which may end the process. So it does not
// decide, and is given back when a later one, which runs alone, ends in a known way. If the later
// one also ends its process, both count for this message.
func presumption(s *stores.FailureState) (class stores.Class, lent int, why error) {
	switch {
	case !s.Presumed:
		return stores.ClassInterrupted, 0, errShared
	case budget.Shared(*s):
		lent = 1
	}
	return stores.ClassCrash, lent, errCrashed
}

// recordStart counts the attempt. If nothing else is heard of it, the record stays as it is.
//
// Until the attempt begins the message is not due for others: otherwise two deliveries would keep
// counting themselves while neither runs.
func (d *Delivery) recordStart() (start, error) {
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
		return startOf(f), d.startLease(f)
	}
	return startOf(f), d.write(f)
}

// uncount takes back an attempt that was counted before it began, and then neither failed nor
// succeeded. If that cannot be recorded within Times.Claim, it stays counted.
func (d *Delivery) uncount(cause error) {
	if d.row.counted == 0 && !d.wroteStart() || d.row.codec {
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
		again := concernsStore(err) || errors.Is(err, stores.ErrChanged) && d.stillCounted()
		if !again || !pause.Sleep(ctx, pause.Jitter(wait)) {
			return
		}
	}
}

// stillCounted reports whether the row has not changed since this delivery has counted its attempt.
// What was refused has then met a lock only.
func (d *Delivery) stillCounted() bool {
	v, err := d.ask()
	return err != nil || v.Failure.Version == d.row.counted
}

// wroteStart reports whether a start without an answer was written, as far as the store says.
func (d *Delivery) wroteStart() bool {
	if d.row.started == (start{}) {
		return false
	}
	v, err := d.ask()
	if err != nil || !d.pending(v) {
		return false
	}
	own, err := d.adopt(v.Failure)
	return own && err == nil
}
