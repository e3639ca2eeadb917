package sqlstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Row has what a claim needs of its key's existing row.
type Row struct {
	Found       bool
	Status      stores.Status
	Fingerprint []byte
	Trace       []byte
	CompletedAt time.Time
	Server      uint64              // that answered; see stores.Verdict
	Failure     stores.FailureState // for the statuses of failed messages; its own Status is not used
}

// Read reads at most one row: its status, when it was completed in microseconds, fingerprint and
// trace parent, then more columns into more, and those of a failure's state.
func (r *Row) Read(rows Rows, more ...any) error {
	*r = Row{}
	if !rows.Next() {
		return rows.Err()
	}
	var state State
	var completed *int64
	into := append([]any{&r.Status, &completed, &r.Fingerprint, &r.Trace}, more...)
	if err := rows.Scan(append(into, state.Into()...)...); err != nil {
		return err
	}
	r.Found, r.CompletedAt, r.Failure = true, Instant(completed), state.Read()
	return errors.Join(r.Complete(), rows.Err())
}

// Complete returns ErrUnavailable for a row whose failure is gone.
func (r *Row) Complete() error {
	if r.Failure.Version == 0 && stores.StatusPending <= r.Status && r.Status <= stores.StatusDiscarded {
		return fmt.Errorf("%w: the row has status %s, but what is known of the failure is gone", stores.ErrUnavailable, r.Status)
	}
	return nil
}

// Verdict compares the row's message with the claimed one. It returns ErrUnavailable for a status
// that only a newer version writes.
func (r Row) Verdict(claimed stores.Fingerprint) (stores.Verdict, error) {
	v := stores.Verdict{CompletedAt: r.CompletedAt, Failure: r.Failure, Server: r.Server}
	v.Failure.Status = r.Status
	copy(v.TraceParent[:], r.Trace)
	switch r.Status {
	case stores.StatusCompleted:
		v.Outcome, v.Failure = stores.Duplicate, stores.FailureState{}
	case stores.StatusPending:
		v.Outcome = r.pending()
	case stores.StatusFailed, stores.StatusDiscarded:
		v.Outcome = stores.Final
	case stores.StatusProcessing:
		fallthrough
	default:
		return stores.Verdict{}, fmt.Errorf("%w: the row has status %d, which a newer version has written", stores.ErrUnavailable, r.Status)
	}
	// An unknown form is treated as an unknown algorithm.
	v.Fingerprint, _ = stores.ParseFingerprint(r.Fingerprint)
	switch v.Fingerprint.Compare(claimed) {
	case stores.Different:
		v.Outcome = stores.Conflict
	case stores.Incomparable:
		v.FingerprintUnknown = true
	case stores.Same:
	}
	return v, nil
}

func (r Row) pending() stores.Outcome {
	switch {
	case r.Failure.Placement == stores.PlacementParked:
		return stores.Parked
	case r.Failure.DueIn > 0:
		return stores.Deferred
	}
	return stores.Claimable
}

// A failure's version is its number, which is never reused, and its revision.
const revisionBits = 20

// Version returns the version of a failure for the contract.
func Version(number, revision int64) int64 { return number<<revisionBits + revision }

// ParseVersion returns the parts of a version.
func ParseVersion(version int64) (number, revision int64) {
	return version >> revisionBits, version & (1<<revisionBits - 1)
}
