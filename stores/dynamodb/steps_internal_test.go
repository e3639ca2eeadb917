package dynamodb

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// leased is a message whose lease is held, and a step of it.
func (b *bench) leased(t *testing.T) (stores.Failure, stores.HeldLease, stores.Step) {
	t.Helper()
	f := stores.Failure{
		Key: newClaim().Key, Status: stores.StatusPending, Placement: stores.PlacementRedelivered, Attempts: 1, DueIn: time.Minute, Start: true, Holder: "holder",
	}
	version, err := b.Record(t.Context(), f)
	require.NoError(t, err)
	f.Version, f.Start, f.Holder = version, false, ""
	return f, stores.HeldLease{Key: f.Key, Version: version, Holder: "holder"}, stores.Step{Name: "step", Result: []byte("result")}
}

// completed completes a message, and returns what is left of all.
func (b *bench) completed(t *testing.T, c stores.Claim) (left int) {
	t.Helper()
	require.NoError(t, b.win(t, c).Commit(t.Context()))
	return b.left(t)
}

// left returns how many steps and parts of contents there are.
func (b *bench) left(t *testing.T) (left int) {
	t.Helper()
	for _, table := range []string{b.table, b.contents} {
		_, err := b.mirror.scan(t.Context(), table, func(i item) error {
			if kind := blob(i["pk"])[0]; kind == kindContent || kind == kindMessage && blob(i["sk"])[0] == stepPrefix {
				left++
			}
			return nil
		})
		require.NoError(t, err)
	}
	return left
}

// A step is gone with its message, also if nobody has heard that it was recorded.
func TestAStepWhoseAnswersAreLost(t *testing.T) {
	b := newBench(t)
	f, lease, step := b.leased(t)
	b.then(transact, unheard()...)
	b.then("GetItem", resets, resets, resets, resets)
	require.ErrorIs(t, b.RecordStep(t.Context(), lease, step), stores.ErrUnavailable)
	c := newClaim()
	c.Key, c.Take = f.Key, f.Version
	require.Zero(t, b.completed(t, c))
}

// And also if it is recorded while somebody else writes the message, who has seen it without.
func TestAStepThatComesBetween(t *testing.T) {
	b := newBench(t)
	f, lease, step := b.leased(t)
	b.then("GetItem", func(f *faults, r *http.Request) (*http.Response, error) {
		answer, err := f.HTTPClient.Do(r)
		if err == nil {
			err = b.RecordStep(t.Context(), lease, step)
		}
		return answer, err
	})
	version, err := b.Record(t.Context(), f)
	require.NoError(t, err)
	c := newClaim()
	c.Key, c.Take = f.Key, version
	require.Zero(t, b.completed(t, c))
}
