package dynamodb

import (
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// A holder renews its lease while another process closes the message: the lease lasts as long as the
// holder was told.
func TestResolveKeepsARenewal(t *testing.T) {
	b := newBench(t)
	_, lease, _ := b.leased(t)
	var renewed error
	b.then("PutItem", func(f *faults, r *http.Request) (*http.Response, error) {
		renewed = b.Extend(t.Context(), lease, time.Hour)
		return f.HTTPClient.Do(r)
	})
	completed, err := b.Resolve(t.Context(), lease.Key)
	require.NoError(t, err)
	require.False(t, completed)
	require.NoError(t, renewed)
	now := b.clock.now()
	r, err := b.read(t.Context(), messageKey(lease.Key))
	require.NoError(t, err)
	require.Greater(t, r.due, now+(59*time.Minute).Microseconds())
}

// The caller may use its slice of outputs for something else before the commit.
func TestOutputsAreNotRetained(t *testing.T) {
	b := newBench(t)
	a := b.win(t, newClaim())
	outputs := []stores.Output{outputOfSize("said", 1)}
	require.NoError(t, a.Emit(outputs))
	outputs[0] = outputOfSize("something else", 1)
	require.NoError(t, a.Commit(t.Context()))
	require.Equal(t, []string{"said"}, b.pending(t))
}

// A transaction whose answer is lost is sent again. The service must still know its token then.
func TestTransactEndsBeforeItsTokenDoes(t *testing.T) {
	b := newBench(t)
	var left time.Duration
	b.then(transact, func(f *faults, r *http.Request) (*http.Response, error) {
		if ends, bounded := r.Context().Deadline(); bounded {
			left = time.Until(ends)
		}
		return f.HTTPClient.Do(r)
	})
	require.NoError(t, b.Transact(t.Context(), func(tx *Tx) error {
		return tx.Put(t.Context(), types.Put{TableName: &b.mirror.effects, Item: item{"id": str("bounded"), "key": str("bounded")}})
	}))
	require.NotZero(t, left)
	require.Less(t, maxTries*left, 10*time.Minute)
}

func resets(*faults, *http.Request) (*http.Response, error) { return nil, errReset }

// A proxy that answers for the service may have a wrong clock.
func TestADateThatIsNotTheServices(t *testing.T) {
	b := newBench(t)
	_, before := b.clock.bounds()
	b.then("GetItem", func(*faults, *http.Request) (*http.Response, error) {
		answer, err := says(http.StatusBadGateway, "no upstream")(nil, nil)
		answer.Header.Set("Date", time.Now().Add(48*time.Hour).UTC().Format(http.TimeFormat))
		return answer, err
	}, resets, resets, resets)
	_, _, err := b.Begin(t.Context(), newClaim())
	require.ErrorIs(t, err, stores.ErrUnavailable)
	_, after := b.clock.bounds()
	require.Less(t, after, before+time.Hour.Microseconds())
}
