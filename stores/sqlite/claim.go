package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// claim is a key to claim at the beginning of a transaction.
type claim struct {
	stores.Claim
	consumer int64
	verdict  stores.Verdict // once decided
}

// errTaken: the claim is not won, for the reason in its verdict. No transaction is left open.
var errTaken = errors.New("the claim is not won")

// decide wins the claim or returns errTaken. A first delivery takes one plain insert, in the final
// state, which the primary key decides.
func (c *conn) decide(cl *claim) error {
	if cl.Take == 0 {
		won, err := c.insert(cl)
		if err != nil || won {
			return err
		}
	}
	row, err := c.look(cl)
	if err != nil {
		return err
	}
	if !row.Found {
		return c.keptOut(cl)
	}
	if err := cl.judge(row); err != nil {
		return err
	}
	return c.takeOver(cl, row)
}

// insert reports whether the key's row was inserted. Without an order key and a time, only another
// row of the key can prevent it.
func (c *conn) insert(cl *claim) (bool, error) {
	which, args := claimStatement, [6]driver.Value{cl.consumer, cl.Key.ID, cl.Fingerprint.Bytes(), sqlstore.TraceBytes(&cl.TraceParent)}
	n := 4
	if len(cl.OrderKey) > 0 {
		which, args[4], n = claimUnlessStatement, cl.OrderKey, 6
	}
	if !cl.Time.IsZero() {
		which, args[5], n = claimUnlessStatement, cl.Time.UnixMicro(), 6
	}
	inserted, err := c.change(which, args[:n]...)
	switch {
	case isUnique(err):
		return false, nil
	case err != nil || inserted == 0:
		return false, err
	}
	cl.verdict.Outcome = stores.Claimed
	return true, nil
}

// takeOver turns the failed row, as read, into a completed one. It makes the order key's next
// message due.
func (c *conn) takeOver(cl *claim, row inboxRow) error {
	number, revision := sqlstore.ParseVersion(row.Failure.Version)
	which, args, n := takeStatement, [5]driver.Value{cl.consumer, cl.Key.ID, number, revision}, 4
	if len(cl.OrderKey) > 0 {
		which, args[4], n = takeInOrderStatement, cl.OrderKey, 5
	}
	taken, err := c.change(which, args[:n]...)
	if err == nil && taken == 0 && len(cl.OrderKey) > 0 {
		cl.verdict.Outcome = stores.Behind
		return errTaken
	}
	if err == nil && taken == 1 {
		taken, err = c.change(completeStatement, sqlstore.TraceBytes(&cl.TraceParent), cl.consumer, cl.Key.ID)
	}
	if err == nil {
		err = c.run(takeStepsStatement, cl.consumer, cl.Key.ID)
	}
	if err != nil {
		return err
	}
	if taken != 1 { // both tables were read under the same lock
		return fmt.Errorf("the rows of %s do not belong together", cl.Key)
	}
	if len(row.orderKey) > 0 {
		if err := c.run(advanceStatement, cl.consumer, row.orderKey); err != nil {
			return err
		}
	}
	cl.verdict.Outcome = stores.Claimed
	return nil
}

// judge decides about the existing row. It returns nil if the claim may take it over.
func (cl *claim) judge(row inboxRow) error {
	v, err := row.Verdict(cl.Fingerprint)
	if err != nil {
		return err
	}
	takeable := v.Outcome == stores.Claimable
	if cl.Take != 0 {
		takeable = v.Failure.Version == cl.Take && row.Status == stores.StatusPending && v.Outcome != stores.Conflict
		if !takeable && v.Outcome == stores.Claimable { // not by this claim, which has another version
			v.Outcome = stores.InFlight
		}
	}
	cl.verdict = v
	if takeable {
		return nil
	}
	return errTaken
}

// look reads the row of the claim's key.
func (c *conn) look(cl *claim) (row inboxRow, err error) {
	var (
		values  [inboxColumns]driver.Value
		columns [inboxColumns]any
	)
	found, err := c.first(lookStatement, values[:], cl.consumer, cl.Key.ID)
	if err != nil || !found {
		return inboxRow{}, err
	}
	for i, value := range values {
		columns[i] = value
	}
	return rowOf(columns[:])
}

// keptOut returns why a new message's row could not be inserted.
func (c *conn) keptOut(cl *claim) error {
	cl.verdict.Outcome = stores.Behind
	switch {
	case cl.Take != 0: // the row to take over is gone
		cl.verdict.Outcome = stores.InFlight
	case !cl.Time.IsZero():
		var purged [1]driver.Value
		stale, err := c.first(staleStatement, purged[:], cl.consumer, cl.Time.UnixMicro())
		if err != nil {
			return err
		}
		if micros, ok := purged[0].(int64); ok && stale {
			cl.verdict.Outcome, cl.verdict.PurgedThrough = stores.Stale, time.UnixMicro(micros)
		}
	}
	return errTaken
}

// inboxRow is a key's row, if there is one.
type inboxRow struct {
	sqlstore.Row
	orderKey []byte
}

const inboxColumns = 5 + numStateColumns

// rowOf reads the columns of lookStatement.
func rowOf(v []any) (inboxRow, error) {
	r := inboxRow{Row: sqlstore.Row{Found: true}}
	status, _ := v[0].(int64)
	r.Status = stores.Status(status) //nolint:gosec // only millpond writes this column
	if at, ok := v[1].(int64); ok {
		r.CompletedAt = time.UnixMicro(at)
	}
	r.Fingerprint, _ = v[2].([]byte)
	r.Trace, _ = v[3].([]byte)
	r.orderKey, _ = v[4].([]byte)
	r.Failure = stateOf(v[5:])
	return r, r.Complete()
}

// lookUp reads a row on a separate connection.
func (s *Store) lookUp(ctx context.Context, consumer int64, id []byte) (inboxRow, error) {
	stmt, err := s.look.get(ctx) //nolint:sqlclosecheck // kept until the store is closed
	if err != nil {
		return inboxRow{}, err
	}
	var columns [inboxColumns]any
	var into [inboxColumns]any
	for i := range columns {
		into[i] = &columns[i]
	}
	err = stmt.QueryRowContext(ctx, consumer, id).Scan(into[:]...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return inboxRow{}, nil
	case err != nil:
		return inboxRow{}, err
	}
	return rowOf(columns[:])
}
