package sqlstore

import (
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// StatusCompleted is the value of the inbox's status column that this version writes;
// the first migration of each store lists them all.
const StatusCompleted = 2

// Row is what a claim needs to know of the row that stands in its way.
type Row struct {
	Status      int64
	Fingerprint []byte
	Trace       []byte
	CompletedAt time.Time
}

// Verdict compares the message that completed the row with the one that is claimed. A
// row in a status that only a newer version writes cannot be judged: ErrUnavailable.
func (r Row) Verdict(claimed stores.Fingerprint) (stores.Verdict, error) {
	if r.Status != StatusCompleted {
		return stores.Verdict{}, fmt.Errorf("%w: the row has status %d, which a newer version has written", stores.ErrUnavailable, r.Status)
	}
	v := stores.Verdict{Outcome: stores.Duplicate, CompletedAt: r.CompletedAt}
	copy(v.TraceParent[:], r.Trace)
	// One of an unknown form is like one of an unknown algorithm.
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
