package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Begin implements stores.Inbox. On the store's own connections it takes one round trip if the
// claim is won, and a second one to find out why it was not.
func (s *Store) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	consumer, err := s.tables.Known(c.Key)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	cl := newClaimed(consumer, &c, rand.Int64()) //nolint:gosec // distinguishes attempts; no secret
	if s.looksAtTimes() && !c.Time.IsZero() {
		cl.time = c.Time.UnixMicro()
	}
	first := &cl
	if c.Take != 0 {
		first = nil
	}
	if first != nil && s.texts().looksFirst() {
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
		won, verdict, err = ss.take(ctx, &c, &cl, c.Take)
	case claimErr == nil && rows > 0:
		won, verdict.Outcome = true, stores.Claimed
	case isContended(claimErr):
		verdict.Outcome, err = stores.InFlight, nil
	case claimErr == nil || isDuplicate(claimErr):
		won, verdict, err = ss.claimAgain(ctx, &c, &cl)
	}
	verdict.Server = ss.server
	if !won || err != nil {
		ss.release(ctx)
		if err != nil {
			return nil, stores.Verdict{}, s.tables.Explain(ctx, err)
		}
		return nil, verdict, nil
	}
	return &attempt{store: s, ss: ss, claim: cl}, verdict, nil
}

// inHands reports whether another transaction has locked a key's row.
func (s *Store) inHands(ctx context.Context, cl *claimed) (bool, error) {
	text := string(s.texts().key([]byte(s.sql.inHands), cl.consumer, cl.id)) + s.texts().nowait()
	var one int
	var err error
	if s.texts().tidb { // see settled
		err = s.undone(ctx, func(tx *sql.Tx) error { return tx.QueryRowContext(ctx, text).Scan(&one) })
	} else {
		_, err = first(ctx, database{s}, text, &one)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	if isContended(err) {
		return true, nil
	}
	if err != nil {
		return false, s.tables.Explain(ctx, err)
	}
	return false, nil
}

// claimAgain handles a first claim that was not won. It takes over a failed message whose next
// attempt this redelivery makes.
func (ss *session) claimAgain(ctx context.Context, c *stores.Claim, cl *claimed) (won bool, v stores.Verdict, err error) {
	row, err := ss.lookBack(ctx, cl.consumer, cl.id)
	if err != nil {
		return false, v, err
	}
	if !row.Found && cl.time != 0 {
		if v, err := ss.store.stale(ctx, cl); err != nil || v.Outcome != 0 {
			return false, v, err
		}
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

// looksAtTimes reports whether claims are compared with the purge's watermark. At REPEATABLE READ
// that would lock the consumer's row until the attempt ends. MySQL's procedure for callers'
// connections has no parameter for the time.
func (s *Store) looksAtTimes() bool {
	return s.texts().isolation == levelName(sql.LevelReadCommitted) && (s.own || s.texts().maria)
}

// stale says whether a purge prevented a claim without a row; the zero verdict means no. While
// another delivery claims the key, it may get a row.
func (s *Store) stale(ctx context.Context, cl *claimed) (stores.Verdict, error) {
	var purged *int64
	found, err := sqlstore.First(ctx, database{s}, sqlstore.Statement{
		Text: s.dialect.Fixed(`SELECT purged_through FROM {schema.}{prefix}consumer WHERE id = ? AND purged_through > ?`), Args: []any{cl.consumer, cl.time},
	}, &purged)
	if err != nil || !found {
		return stores.Verdict{}, err
	}
	held, err := s.inHands(ctx, cl)
	if err != nil {
		return stores.Verdict{}, err
	}
	row, err := database{s}.LookUp(ctx, cl.consumer, cl.id)
	if err != nil || held || row.Found {
		return stores.Verdict{Outcome: stores.InFlight}, err
	}
	return stores.Verdict{Outcome: stores.Stale, PurgedThrough: sqlstore.Instant(purged)}, nil
}

// take turns the failed row in one version into a claimed one. It never waits for the failure's
// row, which every change of a failed message locks.
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
	unchanged := row.Found && row.Status == stores.StatusPending && row.Failure.Version == version && judged.Outcome != stores.Conflict
	switch {
	case behind && unchanged:
		judged.Outcome = stores.Behind
	case unchanged, judged.Outcome == stores.Claimable, !row.Found:
		judged.Outcome = stores.InFlight
	}
	return false, judged, err
}

func (s *Store) tryTake(ctx context.Context, on sqlstore.Sender, cl *claimed, number, revision int64) (taken, behind bool, err error) {
	t, sql := s.texts(), s.sql
	var orderKey []byte
	locked, err := sqlstore.Again(ctx, func() (bool, error) {
		return firstFree(ctx, on, fmt.Sprintf(sql.take, cl.consumer, appendBytes(nil, cl.id), number, revision), &orderKey)
	})
	if err != nil || !locked {
		return false, false, err
	}
	if cl.orderKey != nil {
		var one int
		behind, err = first(ctx, on, fmt.Sprintf(sql.behind, cl.consumer, appendBytes(nil, cl.orderKey), number), &one)
		if err != nil || behind {
			return false, behind, err
		}
	}
	mark := fmt.Appendf(nil, sql.mark, cl.token, appendBytes(nil, cl.trace))
	changed, err := exec(ctx, on, string(t.key(mark, cl.consumer, cl.id)))
	if err != nil || changed != 1 {
		return false, false, err
	}
	if _, err := exec(ctx, on, fmt.Sprintf(sql.remove, number)); err != nil {
		return false, false, err
	}
	if orderKey == nil {
		return true, false, nil
	}
	return true, false, s.advance(ctx, on, cl.consumer, orderKey, number)
}

// inboxRow is a key's row, if there is one.
type inboxRow struct {
	sqlstore.Row

	age *int64 // microseconds since the claim or the completion
}

// read reads lookColumns.
func (r *inboxRow) read(rows sqlstore.Rows) error {
	var orderKey []byte
	return r.Read(rows, &r.age, &orderKey)
}

// lostAfter is the age at which a claim that was committed early, and has no bound, counts as lost.
const lostAfter = time.Hour

// judge decides about the row. Claimable means that it can be taken over.
func (r *inboxRow) judge(c *stores.Claim) (stores.Verdict, error) {
	switch {
	case !r.Found && c.OrderKey != nil && c.Take == 0:
		return stores.Verdict{Outcome: stores.Behind}, nil
	case !r.Found: // the transaction that inserted it has rolled back
		return stores.Verdict{Outcome: stores.InFlight}, nil
	case r.Status == stores.StatusProcessing:
		// The handler committed its transaction early. While it may still run, the message is in
		// flight. Otherwise its process has died: part of its effects is committed, so the message
		// must neither run again nor count as completed.
		v := stores.Verdict{Outcome: stores.InFlight, CompletedAt: r.CompletedAt}
		limit := c.Bound
		if limit == 0 {
			limit = lostAfter
		}
		if r.age != nil && *r.age > limit.Microseconds() {
			v.Outcome = stores.Conflict
			v.Fingerprint, _ = stores.ParseFingerprint(r.Fingerprint)
		}
		return v, nil
	}
	return r.Verdict(c.Fingerprint)
}
