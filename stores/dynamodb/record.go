package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Lengths of texts, the same in all stores.
const (
	maxPlaceBytes = 1 << 10
	maxWordBytes  = 200
)

// Record implements stores.Failures. A first failure takes one write, and one more if the message
// is kept. A later failure reads the item first.
func (s *Store) Record(ctx context.Context, f stores.Failure) (int64, error) {
	consumer, err := s.known.Known(f.Key)
	if err == nil {
		err = sqlstore.FitFailure(string(pkg), &f)
	}
	if err != nil {
		return 0, err
	}
	if s.flying(f.Key) {
		return 0, fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	}
	seen, r, err := s.recorded(ctx, &f)
	if err != nil {
		return 0, err
	}
	old := *r
	if c := f.Content; c != nil {
		if err := s.content(ctx, r, c); err != nil {
			return 0, err
		}
	}
	if f.Placement == stores.PlacementParked && r.content != stores.ContentKept {
		return 0, errors.New("dynamodb: a failure that is parked needs content in the state kept")
	}
	r.index(consumer, f.Key.ID)
	if err := s.write(ctx, messageKey(f.Key), r, guard{seen: seen, closed: true, due: f.Lapsed}); err != nil {
		if f.Content != nil {
			s.abandon(ctx, messageKey(f.Key), r, err)
		}
		return 0, err
	}
	if f.Content != nil {
		s.drop(ctx, &old)
	}
	s.leases.keep(f.Key, r)
	return r.version(), nil
}

// recorded returns the row as it was read, and the row to write.
func (s *Store) recorded(ctx context.Context, f *stores.Failure) (seen, r *row, err error) {
	r = &row{fingerprint: f.Fingerprint.Bytes()}
	if t := f.TraceParent; !t.IsZero() {
		r.trace = slices.Clone(t[:])
	}
	if f.Version == 0 {
		r.number, err = s.draw(ctx)
	} else {
		seen, err = s.read(ctx, messageKey(f.Key))
		if err == nil && (!seen.is(stores.StatusPending) || seen.version() != f.Version) {
			err = fmt.Errorf("dynamodb: %w", stores.ErrChanged)
		}
		if err == nil {
			copied := *seen
			r = &copied
			r.revision++
		}
	}
	if err == nil {
		err = s.change(r, f)
	}
	return seen, r, err
}

// change applies a failure to a row. It takes over a lease only when the earliest possible time is
// after the latest possible end.
func (s *Store) change(r *row, f *stores.Failure) error {
	now, high := s.clock.bounds()
	if f.Lapsed && (r.due == 0 || now < r.due+marginOf(r)) {
		return fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	}
	if f.Start && f.Class == "" { // nothing new is known about the failure
		f.Class, f.Cause, f.Error = r.class, r.cause, r.failure
	}
	if history := sqlstore.Remember(r.history, f, r.presumed, r.lastAt, now); history != nil {
		r.history = history
	}
	if f.Version == 0 {
		r.firstAt = now
	}
	if f.Version == 0 || r.attempts == 0 && r.uncounted == 0 {
		r.budgetAt = now
	}
	r.status, r.placement, r.presumed = f.Status, f.Placement, f.Start
	r.attempts, r.uncounted, r.lastAt = f.Attempts, f.Uncounted, now
	r.class, r.cause, r.failure = f.Class, f.Cause, f.Error
	r.reserved, r.suspect, r.holder, r.beat = false, false, "", 0
	if f.OrderKey != nil {
		r.orderKey = sqlstore.NonEmpty(f.OrderKey)
	}
	if f.Topic != "" {
		r.topic = f.Topic
	}
	if f.Coordinates != "" {
		r.coordinates = f.Coordinates
	}
	if f.Start && f.Holder != "" {
		r.holder, now = f.Holder, high
	}
	r.due = now + min(max(0, f.DueIn).Microseconds(), math.MaxInt64/4)
	return nil
}

// marginOf returns how long after its end a lease may be taken over, since the service's clocks may
// differ.
func marginOf(r *row) int64 {
	if r.holder == "" {
		return 0
	}
	return hostMargin.Microseconds()
}

// content writes what is kept of a message, and names it in the row.
func (s *Store) content(ctx context.Context, r *row, c *stores.Content) error {
	r.content, r.codec, r.uuid = c.State, sqlstore.Text(c.Codec, maxWordBytes), []byte(c.UUID)
	return s.store(ctx, r, c.Metadata, c.Facts, c.Payload)
}

// KeepContent implements stores.Failures.
func (s *Store) KeepContent(ctx context.Context, k stores.Key, version int64, c stores.Content) error {
	if _, err := s.known.Known(k); err != nil {
		return err
	}
	seen, err := s.read(ctx, messageKey(k))
	if err != nil {
		return err
	}
	final := seen.is(stores.StatusFailed) || seen.is(stores.StatusDiscarded)
	if !final || seen.version() != version || seen.content != stores.ContentNone {
		return fmt.Errorf("dynamodb: %w", stores.ErrChanged)
	}
	r := *seen
	if err := s.content(ctx, &r, &c); err != nil {
		return err
	}
	r.revision++
	err = s.write(ctx, messageKey(k), &r, guard{seen: seen})
	s.abandon(ctx, messageKey(k), &r, err)
	return err
}

// holding is the condition that somebody holds a given version of a lease.
const holding = "#num = :num AND #rev = :rev AND #st = :st AND #hld = :hld"

// holder returns the values that holding refers to.
func holder(l stores.HeldLease) item {
	n, revision := sqlstore.ParseVersion(l.Version)
	return item{":num": num(n), ":rev": num(revision), ":st": num(int64(stores.StatusPending)), ":hld": str(l.Holder)}
}

// holds reports whether the row is the one of that lease.
func (r *row) holds(l stores.HeldLease) bool {
	return r.is(stores.StatusPending) && r.version() == l.Version && r.holder == l.Holder
}

// Extend implements stores.LeaseInbox with one write. It does not renew a lease that may have
// expired: another holder may be about to take it over.
func (s *Store) Extend(ctx context.Context, l stores.HeldLease, d time.Duration) error {
	if _, err := s.known.Known(l.Key); err != nil {
		return err
	}
	_, high := s.clock.bounds()
	beat, values := s.leases.beat(high), holder(l)
	values[":until"], values[":beat"], values[":now"] = num(high+d.Microseconds()), num(beat), num(high)
	_, err := s.update(ctx, s.table, messageKey(l.Key), "SET #due = :until, #bea = :beat",
		holding+" AND #due > :now AND (attribute_not_exists(#bea) OR #bea < :beat)", values) // an earlier renewal could arrive late
	return s.refused(ctx, err, func(there item) bool {
		r := rowOf(there)
		return r.holds(l) && r.beat == beat
	})
}
