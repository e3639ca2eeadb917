package dynamodb

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// The answers to a write of the quarantine are lost, all of them. What it names is kept.
func TestAQuarantinedMessageIsKeptWhateverIsHeardOfIt(t *testing.T) {
	b := newBench(t)
	q := stores.Quarantined{Consumer: consumer, ID: []byte("u:id"), Reason: stores.ReasonConflict, Payload: []byte("payload")}
	b.then("PutItem", append([]fault{nil}, unheard()...)...)
	b.then("GetItem", resets, resets, resets, resets)
	require.ErrorIs(t, b.Quarantine(t.Context(), q), stores.ErrUnavailable)
	require.NoError(t, b.Quarantine(t.Context(), q))
	rows, err := b.Quarantined(t.Context(), stores.QuarantineQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	row, err := b.QuarantinedRow(t.Context(), rows[0].RowID)
	require.NoError(t, err)
	require.NoError(t, row.Unreadable)
	require.Equal(t, "payload", string(row.Payload))
}

// The answer to the record of a failure is lost, another worker reserves the message, and the same
// request comes again, which is refused. The message still has its content.
func TestARecordedMessageIsKeptWhateverIsHeardOfIt(t *testing.T) {
	b := newBench(t)
	f := failureOf(newClaim())
	f.Placement, f.DueIn = stores.PlacementParked, 0
	f.Content = &stores.Content{State: stores.ContentKept, Payload: []byte("payload")}
	var reserved []stores.Retry
	b.then("PutItem", nil, func(f *faults, r *http.Request) (*http.Response, error) {
		_, lost := loseAnswer(f, r)
		due, err := b.Due(t.Context(), stores.DueQuery{Consumer: consumer, Limit: 1, Reserve: time.Minute})
		require.NoError(t, err)
		reserved = due
		return nil, lost
	})
	_, err := b.Record(t.Context(), f)
	require.ErrorIs(t, err, stores.ErrChanged)
	require.Len(t, reserved, 1)
	m, err := b.Find(t.Context(), f.Key)
	require.NoError(t, err)
	require.NoError(t, m.Unreadable)
	require.Equal(t, "payload", string(m.Payload))
}
