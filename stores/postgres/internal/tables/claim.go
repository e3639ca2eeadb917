package tables

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// The packages of the drivers make claims from these statements.

// Claim returns the statement that makes a claim by inserting its row. If the claim is won it
// returns the time in the row, in microseconds, and the server, as in stores.Verdict.
func (t *Tables) Claim(consumer int64, c *stores.Claim) (text string, args []any) {
	args = make([]any, 5, 9)
	args[0], args[1], args[2], args[3], args[4] = consumer, c.Key.ID, c.Fingerprint.Bytes(), sqlstore.TraceBytes(&c.TraceParent), t.LockKey(consumer, c.Key.ID)
	var kind claimKind
	if !c.Time.IsZero() {
		kind, args = kind|ofTime, append(args, micros(c.Time))
	}
	if c.OrderKey != nil {
		kind, args = kind|ofOrder, append(args, c.OrderKey)
	}
	if limits := t.settings.Load().limits; !limits.keep(c.Bound) {
		idle, statement := limits.within(c.Bound)
		kind, args = kind|ofBound, append(args, idle, statement)
	}
	return t.sql.claims[kind], args
}

// claimKind says what a claim by insert must check besides its key.
type claimKind uint8

const (
	ofTime  claimKind = 1 << iota // whether the message is older than the purge's watermark
	ofOrder                       // whether it would pass an earlier message
	ofBound                       // the bound, as the connection's own timeouts do not enforce it

	claimKinds = 8 // all combinations of them
)

// claimText numbers the arguments in the order in which Claim appends them.
func claimText(kind claimKind) string {
	text, next := insertText+keyLock, 6
	if kind&ofBound != 0 {
		text = insertText + bounded
	}
	if kind&ofTime != 0 {
		text += timed
	}
	if kind&ofOrder != 0 {
		text += ordered
	}
	for _, name := range []string{"@time", "@order", "@idle", "@statement"} {
		if strings.Contains(text, name) {
			text = strings.ReplaceAll(text, name, "$"+strconv.Itoa(next))
			next++
		}
	}
	return text + "\nON CONFLICT DO NOTHING RETURNING " + completed + ", " + server
}

// micros converts a time to an argument; 0: unknown.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// TakeOver is Claim for the failed row with the version c.Take. Send Bound first.
func (t *Tables) TakeOver(consumer int64, c *stores.Claim) (text string, args []any) {
	number, revision := sqlstore.ParseVersion(c.Take)
	lock, trace := t.LockKey(consumer, c.Key.ID), sqlstore.TraceBytes(&c.TraceParent)
	if c.OrderKey == nil {
		return t.sql.takeOver, []any{consumer, c.Key.ID, number, revision, lock, trace}
	}
	return t.sql.takeOverOrdered, []any{consumer, c.Key.ID, number, revision, lock, trace, c.OrderKey}
}

// StepsGone returns the statement that deletes the message's steps that TakeOver did not see. It
// does nothing unless TakeOver won.
func (t *Tables) StepsGone(consumer int64, c *stores.Claim) (text string, args []any) {
	return t.sql.stepsGone, []any{consumer, c.Key.ID}
}

// Bound returns the statement that bounds a transaction, or "" if its connection already does.
func (t *Tables) Bound(c *stores.Claim) (text string, args []any) {
	limits := t.settings.Load().limits
	if limits.keep(c.Bound) {
		return "", nil
	}
	idle, statement := limits.within(c.Bound)
	return setBound, []any{idle, statement}
}

var setBound = qualify("SELECT set_config('idle_in_transaction_session_timeout', $1, true), set_config('statement_timeout', $2, true)")

// Behind returns the statement that tells, for a claim that was not won, whether it has its key's
// lock and whether earlier messages block it, or "" without an order. Send it in the claim's
// transaction.
func (t *Tables) Behind(consumer int64, c *stores.Claim) (text string, args []any) {
	switch {
	case c.OrderKey == nil:
		return "", nil
	case c.Take == 0:
		return t.sql.behind, []any{consumer, t.LockKey(consumer, c.Key.ID), c.OrderKey}
	}
	number, _ := sqlstore.ParseVersion(c.Take)
	return t.sql.behindEarlier, []any{consumer, c.OrderKey, number}
}

// Stale returns the statement that tells, for a claim that was not won, whether it has its key's
// lock, and up to when its consumer was purged if the message is older. It returns "" if the
// message's age is unknown. Send it in the claim's transaction, before the row is read.
func (t *Tables) Stale(consumer int64, c *stores.Claim) (text string, args []any) {
	if c.Time.IsZero() || c.Take != 0 {
		return "", nil
	}
	return t.sql.stale, []any{consumer, t.LockKey(consumer, c.Key.ID), micros(c.Time)}
}

// Look returns the statement that reads a key's row.
func (t *Tables) Look() string { return t.sql.look }

// Owned returns the statement that fails (see NotOurs) unless its transaction has written the row
// of the consumer and id in its arguments.
func (t *Tables) Owned() string { return t.sql.owned }

// Seen is what a claim that was not won found, besides the row.
type Seen struct {
	Free   bool   // the claim has the key's lock
	Behind bool   // earlier messages block it
	Purged *int64 // the message is older than this
}

// ReadStale reads the answer to Stale.
func (s *Seen) ReadStale(rows Rows) error {
	found, free := false, false
	if err := first(&found, &free, &s.Purged)(rows); err != nil {
		return err
	}
	s.Free = s.Free || free
	return nil
}

// Judge returns the verdict on a claim that was not won, from the row, if there is one, and the
// answers of Behind and Stale. Claimable: another try may win, with the version of the verdict's
// failure.
func Judge(c *stores.Claim, row *sqlstore.Row, seen Seen) (verdict stores.Verdict, err error) {
	switch {
	case row.Found:
		verdict, err = row.Verdict(c.Fingerprint)
	case seen.Free && seen.Purged != nil:
		verdict.Outcome, verdict.PurgedThrough = stores.Stale, sqlstore.Instant(seen.Purged)
	case seen.Free && seen.Behind:
		verdict.Outcome = stores.Behind
	case seen.Free:
		verdict.Outcome = stores.Claimable
	default: // the lock is taken, or its holder has rolled back meanwhile
		verdict.Outcome = stores.InFlight
	}
	asItWas := row.Status == stores.StatusPending && row.Failure.Version == c.Take
	switch {
	case err != nil || c.Take == 0:
	case asItWas && seen.Behind:
		verdict.Outcome = stores.Behind
	case asItWas, verdict.Outcome == stores.Claimable: // another transaction has the lock, or the row has another version
		verdict.Outcome = stores.InFlight
	}
	return verdict, err
}

// LockKey returns a key's advisory lock: 64 bits of a hash over table, consumer and id, the same as
// LockKeyText in SQL. Keys that collide only wait for each other.
func (t *Tables) LockKey(consumer int64, id []byte) int64 {
	buf := make([]byte, 0, 128)
	buf = append(buf, t.lockPrefix...)
	buf = binary.BigEndian.AppendUint64(buf, uint64(consumer)) //nolint:gosec // the bits are what matters
	buf = append(buf, id...)
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // the bits are what matters
}

// LockPrefix returns what a lock key consists of, besides consumer and id.
func (t *Tables) LockPrefix() []byte { return t.lockPrefix }

// DueText is the statement of Due.
func (t *Tables) DueText() string { return t.sql.due }

// TakeOverText is the statement of TakeOver without an order.
func (t *Tables) TakeOverText() string { return t.sql.takeOver }

// RangeTexts are the statements that read and purge a range of the inbox.
func (t *Tables) RangeTexts() (survey, purge string) { return t.sql.survey, t.sql.purge }

// LookTexts are the statements that look up one message, and several.
func (t *Tables) LookTexts() (one, some string) { return t.sql.look, t.sql.lookShared }

// BatchTexts are the statements of UnclaimAll and OwnedBatch.
func (t *Tables) BatchTexts() (unclaimAll, ownedBatch string) {
	return t.sql.unclaimAll, t.sql.ownedBatch
}
