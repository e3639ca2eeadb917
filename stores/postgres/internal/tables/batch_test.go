package tables

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// All batches make their claims in one order. What belongs to a claim goes with it.
func TestClaimsOfABatchAreSortedByKey(t *testing.T) {
	t.Parallel()
	var claims []stores.Claim
	for i, id := range []string{"b", "ab", "\xff", "a", "c", "\x00"} {
		claims = append(claims, stores.Claim{
			Key:         stores.Key{ID: []byte(id)},
			Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte(id)),
			TraceParent: stores.TraceParent{byte(i + 1)},
			Time:        time.UnixMicro(int64(i + 1)),
		})
	}
	var tables Tables
	_, args := tables.ClaimBatch(1, claims)
	var want [5]string
	for n, i := range []int{5, 3, 1, 0, 4, 2} {
		c := claims[i]
		for at, value := range []any{c.Key.ID, c.Fingerprint.Bytes(), c.TraceParent[:], tables.LockKey(1, c.Key.ID), c.Time.UnixMicro()} {
			if n > 0 {
				want[at] += " "
			}
			want[at] += fmt.Sprint(value)
		}
	}
	for at, name := range []string{"ids", "fingerprints", "trace parents", "locks", "times"} {
		if got := fmt.Sprint(args[at+1]); got != "["+want[at]+"]" {
			t.Errorf("the %s are %s, want [%s]", name, got, want[at])
		}
	}
	if !slices.Equal(claims[0].Key.ID, []byte("b")) {
		t.Error("the caller's claims are in another order")
	}
}
