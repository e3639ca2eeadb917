package mysql_test

import (
	"crypto/rand"
	"testing"

	"github.com/millpond-go/millpond/internal/myproxy"
	"github.com/millpond-go/millpond/stores"
)

func TestWhatAnOutputCosts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, p product) {
		for name, own := range map[string]bool{"own": true, "a caller's": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := newCounted(t, p, own)
				cost := func(outputs ...stores.Output) myproxy.Stats {
					return c.cost(func() {
						a := begin(t, c, claimOf(rand.Text()))
						if err := exec(t.Context(), a, effect); err != nil {
							t.Fatal(err)
						}
						if err := a.(stores.Emitter).Emit(outputs); err != nil {
							t.Fatal(err)
						}
						if err := a.Commit(t.Context()); err != nil {
							t.Fatal(err)
						}
					})
				}
				more := 1
				switch {
				case p.maria():
					more = 0
				case !own: // so that what is written commits with the attempt, whatever the handler has set
					more = 2
				}
				one := stores.Output{ID: "id", Topic: "topic", Payload: make([]byte, 600)}
				without, with := cost(), cost(one)
				if with.RoundTrips != without.RoundTrips+more || with.Commits != without.Commits || with.Rollbacks != 0 {
					t.Errorf("with an output: %+v, without: %+v, want %d trips more", with, without, more)
				}
				keyed := one
				keyed.OrderKey = []byte("k")
				if got := cost(one, keyed); p.maria() && got.RoundTrips != without.RoundTrips {
					t.Errorf("with an order key: %+v, without: %+v", got, without)
				}
			})
		}
	})
}
