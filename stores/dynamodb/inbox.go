package dynamodb

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Begin implements stores.Inbox with one consistent read, or none when it completes a lease. It
// writes nothing before Commit, so InFlight is only for a key in flight in this process: a key that
// another process handles may be claimed here, too.
func (s *Store) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	if _, err := s.known.Known(c.Key); err != nil {
		return nil, stores.Verdict{}, err
	}
	if len(c.OrderKey) > 0 {
		return nil, stores.Verdict{}, errOrdered
	}
	f := flight(c.Key)
	if _, flying := s.flights.LoadOrStore(f, true); flying {
		return nil, stores.Verdict{Outcome: stores.InFlight}, nil
	}
	seen, v, err := s.judge(ctx, &c)
	if err != nil || v.Outcome != stores.Claimed {
		s.flights.Delete(f)
		return nil, v, err
	}
	return newAttempt(s, c, seen), v, nil
}

var errOrdered = fmt.Errorf("dynamodb: %w: order keys are not kept in order: leave OrderKey out, or use another store", stores.ErrUnordered)

// judge reads the row of a claim, and returns the verdict.
func (s *Store) judge(ctx context.Context, c *stores.Claim) (*row, stores.Verdict, error) {
	seen := s.leases.take(c.Key, c.Take)
	if seen == nil {
		var err error
		if seen, err = s.read(ctx, messageKey(c.Key)); err != nil {
			return nil, stores.Verdict{}, err
		}
		seen.follow(seen) // a step may be being recorded
	}
	if !seen.known() {
		if c.Take != 0 { // the failed row no longer exists
			return nil, stores.Verdict{Outcome: stores.InFlight}, nil
		}
		through, err := s.forgotten(ctx, c)
		switch {
		case err != nil:
			return nil, stores.Verdict{}, err
		case !through.IsZero():
			return nil, stores.Verdict{Outcome: stores.Stale, PurgedThrough: through}, nil
		}
		return seen, stores.Verdict{Outcome: stores.Claimed}, nil
	}
	v, err := s.verdict(seen, c.Fingerprint)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	takeable := v.Outcome == stores.Claimable
	if c.Take != 0 {
		takeable = v.Failure.Version == c.Take && seen.is(stores.StatusPending) && v.Outcome != stores.Conflict
		if !takeable && v.Outcome == stores.Claimable { // not by this claim, which has another version
			v.Outcome = stores.InFlight
		}
	}
	if takeable {
		v.Outcome = stores.Claimed
	}
	return seen, v, nil
}

// verdict returns what a row means for a message.
func (s *Store) verdict(r *row, f stores.Fingerprint) (stores.Verdict, error) {
	known := sqlstore.Row{Found: true, Status: r.status, Fingerprint: r.fingerprint, Trace: r.trace, CompletedAt: instant(r.completedAt), Failure: s.state(r)}
	return known.Verdict(f) //nolint:wrapcheck // the contract's own error
}

// state returns what is known about the failure of a message.
func (s *Store) state(r *row) stores.FailureState {
	if r.number == 0 {
		return stores.FailureState{}
	}
	now := s.clock.now()
	state := stores.FailureState{
		Version: r.version(), Status: r.status, Placement: r.placement, Content: r.content, Class: r.class,
		Attempts: r.attempts, Uncounted: r.uncounted, Presumed: r.presumed, Age: micros(max(0, now-r.budgetAt)),
	}
	if r.due != 0 {
		state.DueIn = micros(r.due - now)
	}
	return state
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// instant converts a time of a row; 0 is the zero time.
func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n)
}

// forgotten returns the time up to which a consumer's completed rows may have been deleted, or the
// zero time if the broker took the claim's message later. For younger messages it reads nothing.
func (s *Store) forgotten(ctx context.Context, c *stores.Claim) (time.Time, error) {
	now := s.clock.now()
	if c.Time.IsZero() || now-c.Time.UnixMicro() < (minRetention-time.Hour).Microseconds() {
		return time.Time{}, nil
	}
	of, err := s.get(ctx, consumerKey(sqlstore.ConsumerNumber(c.Key.Consumer)))
	if err != nil {
		return time.Time{}, err
	}
	kept := integer(of["ret"])
	if kept == 0 {
		return time.Time{}, nil
	}
	through := time.UnixMicro(now).Add(stores.ClockMargin - time.Duration(kept)*time.Second)
	if through.UnixMicro() < integer(of["reg"]) || !c.Time.Before(through) { // no row is older than the consumer
		return time.Time{}, nil
	}
	return through, nil
}

// Look implements stores.Failures.
func (s *Store) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	if _, err := s.known.Known(k); err != nil {
		return stores.Verdict{}, err
	}
	r, err := s.read(ctx, messageKey(k))
	if err != nil || !r.known() {
		return stores.Verdict{Outcome: stores.Claimable}, err
	}
	return s.verdict(r, f)
}
