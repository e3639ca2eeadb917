package mysql

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Begin implements stores.Inbox. On a connection of the store's own it takes one trip if
// the claim is won, and one more to see why not.
func (s *Store) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	a, verdict, err := s.begin(ctx, &c)
	if a == nil { // not a non-nil interface around a nil pointer
		return nil, verdict, err
	}
	return a, verdict, nil
}

func (s *Store) begin(ctx context.Context, c *stores.Claim) (*attempt, stores.Verdict, error) {
	consumer, err := s.tables.Known(c.Key)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	cl := newClaimed(consumer, c, rand.Int64()) //nolint:gosec // tells attempts apart, keeps no secret
	first := &cl
	if c.Take != 0 {
		first = nil
	}
	if first != nil && s.texts.looksFirst() {
		if held, err := s.inHands(ctx, &cl); held || err != nil {
			return nil, stores.Verdict{Outcome: stores.InFlight}, err
		}
	}
	ss, rows, claimErr, err := s.open(ctx, first, c.Bound)
	if err != nil {
		return nil, stores.Verdict{}, s.tables.Explain(ctx, err)
	}
	won, verdict, err := false, stores.Verdict{}, claimErr
	switch {
	case c.Take != 0:
		won, verdict, err = ss.take(ctx, c, &cl, c.Take)
	case claimErr == nil && rows > 0:
		won, verdict.Outcome = true, stores.Claimed
	case isContended(claimErr):
		verdict.Outcome, err = stores.InFlight, nil
	case claimErr == nil || isDuplicate(claimErr):
		won, verdict, err = ss.claimAgain(ctx, c, &cl)
	}
	if !won || err != nil {
		ss.release(ctx)
		if err != nil {
			return nil, stores.Verdict{}, s.tables.Explain(ctx, err)
		}
		return nil, verdict, nil
	}
	return &attempt{store: s, ss: ss, claim: cl}, verdict, nil
}

// inHands reports whether somebody has locked the row of a key.
func (s *Store) inHands(ctx context.Context, cl *claimed) (bool, error) {
	text := string(s.texts.key([]byte(s.sql.inHands), cl.consumer, cl.id)) + " FOR SHARE NOWAIT"
	_, err := sqlstore.Send(ctx, s.db, sqlstore.Statement{Text: text, Read: func(rows sqlstore.Rows) error {
		rows.Next()
		return rows.Err()
	}})
	if isContended(err) {
		return true, nil
	}
	if err != nil {
		return false, s.tables.Explain(ctx, err)
	}
	return false, nil
}

// claimAgain looks at what stands in the way of a first claim. What has failed before,
// and is to be tried now by its redelivery, is taken over.
func (ss *session) claimAgain(ctx context.Context, c *stores.Claim, cl *claimed) (won bool, v stores.Verdict, err error) {
	row, err := ss.lookBack(ctx, cl.consumer, cl.id)
	if err != nil {
		return false, v, err
	}
	if v, err = row.judge(c); err != nil || v.Outcome != stores.Claimable {
		return false, v, err
	}
	won, seen, err := ss.take(ctx, c, cl, v.Failure.Version)
	if won || seen.Outcome == stores.Behind {
		v.Outcome = seen.Outcome
		return won, v, err
	}
	v.Outcome = stores.InFlight
	return false, v, err
}

// take turns the failed row in one version into one that is claimed. It never waits for
// who has the failure's row, and whoever changes a failed message has that.
func (ss *session) take(ctx context.Context, c *stores.Claim, cl *claimed, version int64) (won bool, v stores.Verdict, err error) {
	if !ss.store.own && !ss.dirty {
		if _, _, err := ss.prepare(ctx, nil, c.Bound); err != nil {
			return false, v, err
		}
	}
	ss.ended = false
	number, revision := sqlstore.ParseVersion(version)
	taken, behind, err := ss.store.tryTake(ctx, ss, cl, number, revision)
	if isContended(err) {
		taken, err = false, nil
	}
	switch {
	case err != nil:
		return false, v, err
	case taken:
		cl.took = version
		v.Outcome = stores.Claimed
		return true, v, nil
	case behind:
		v.Outcome = stores.Behind
	}
	row, err := ss.lookBack(ctx, cl.consumer, cl.id)
	if err != nil {
		return false, v, err
	}
	judged, err := row.judge(c)
	unchanged := row.found && row.Status == stores.StatusPending && row.Failure.Version == version && judged.Outcome != stores.Conflict
	switch {
	case behind && unchanged:
		judged.Outcome = stores.Behind
	case unchanged, judged.Outcome == stores.Claimable, !row.found:
		judged.Outcome = stores.InFlight
	}
	return false, judged, err
}

func (s *Store) tryTake(ctx context.Context, on sender, cl *claimed, number, revision int64) (taken, behind bool, err error) {
	t, sql := s.texts, s.sql
	var orderKey []byte
	locked, err := sqlstore.Again(ctx, func() (bool, error) {
		return on.row(ctx, fmt.Sprintf(sql.take, cl.consumer, appendBytes(nil, cl.id), number, revision), &orderKey)
	})
	if err != nil || !locked {
		return false, false, err
	}
	if cl.orderKey != nil {
		var one int
		behind, err = on.row(ctx, fmt.Sprintf(sql.behind, cl.consumer, appendBytes(nil, cl.orderKey), number), &one)
		if err != nil || behind {
			return false, behind, err
		}
	}
	mark := fmt.Appendf(nil, sql.mark, cl.token, appendBytes(nil, cl.trace))
	changed, err := on.exec(ctx, string(t.key(mark, cl.consumer, cl.id)))
	if err != nil || changed != 1 {
		return false, false, err
	}
	if _, err := on.exec(ctx, fmt.Sprintf(sql.remove, number)); err != nil {
		return false, false, err
	}
	if orderKey == nil {
		return true, false, nil
	}
	return true, false, advance(ctx, on, sql, cl.consumer, orderKey, number)
}

// inboxRow is the row of a key, if there is one.
type inboxRow struct {
	sqlstore.Row

	found    bool
	age      time.Duration // of a claim that was committed early
	orderKey []byte

	scan struct {
		status         int64
		completed, age *int64
		state          sqlstore.State
	}
}

// into returns the destinations of lookColumns.
func (r *inboxRow) into() []any {
	return append([]any{&r.scan.status, &r.scan.completed, &r.Fingerprint, &r.Trace, &r.scan.age, &r.orderKey}, r.scan.state.Into()...)
}

// read makes sense of what was scanned.
func (r *inboxRow) read(found bool) error {
	if r.found = found; !found {
		return nil
	}
	r.Status = stores.Status(r.scan.status) //nolint:gosec // only millpond writes it
	r.CompletedAt = sqlstore.Instant(r.scan.completed)
	r.Failure = r.scan.state.Read()
	if r.scan.age != nil {
		r.age = time.Duration(*r.scan.age) * time.Microsecond
	}
	if r.Failure.Version == 0 && stores.StatusPending <= r.Status && r.Status <= stores.StatusDiscarded {
		return fmt.Errorf("%w: the row has status %s, but what is known of the failure is gone", stores.ErrUnavailable, r.Status)
	}
	return nil
}

// lostAfter is when a claim without a bound that was committed early is given up.
const lostAfter = time.Hour

// judge decides about the row. Claimable means that it can be taken over.
func (r *inboxRow) judge(c *stores.Claim) (stores.Verdict, error) {
	switch {
	case !r.found && c.OrderKey != nil && c.Take == 0:
		return stores.Verdict{Outcome: stores.Behind}, nil
	case !r.found: // whose insert was in the way has rolled back
		return stores.Verdict{Outcome: stores.InFlight}, nil
	case r.Status == stores.StatusProcessing:
		// A handler has committed its transaction in the middle. While it may still run it
		// is in flight. If it has not ended by now its process has died: part of its effects
		// is committed, so that the message may neither run again nor count as completed.
		v := stores.Verdict{Outcome: stores.InFlight, CompletedAt: r.CompletedAt}
		limit := c.Bound
		if limit == 0 {
			limit = lostAfter
		}
		if r.age > limit {
			v.Outcome = stores.Conflict
			v.Fingerprint, _ = stores.ParseFingerprint(r.Fingerprint)
		}
		return v, nil
	}
	return r.Verdict(c.Fingerprint)
}
