package mysql_test

import (
	"crypto/rand"
	"testing"

	"github.com/millpond-go/millpond/internal/myproxy"
	"github.com/millpond-go/millpond/stores"
)

// saying is what a message costs whose handler says something.
func (c counted) saying(t *testing.T, outputs ...stores.Output) myproxy.Stats {
	t.Helper()
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

func TestWhatAnOutputCosts(t *testing.T) {
	t.Parallel()
	one := stores.Output{ID: "id", Topic: "topic", Payload: make([]byte, 600)}
	keyed := one
	keyed.OrderKey = []byte("k")
	byTurns(t, func(t *testing.T, p product) {
		for name, own := range map[string]bool{"own": true, "a caller's": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := newCounted(t, p, own)
				without := c.saying(t)
				for _, test := range []struct {
					what    string
					outputs []stores.Output
					more    int // trips, on MySQL
				}{
					{"one", []stores.Output{one}, 0},
					{"one with an order key", []stores.Output{keyed}, 0},
					{"three, one with an order key", []stores.Output{one, keyed, one}, 4}, // each, and the lock
				} {
					if p.maria() {
						test.more = 0
					} else if test.more > 0 && !own { // what is written commits with the attempt, whatever the handler has set
						test.more++
					}
					if with := c.saying(t, test.outputs...); with.RoundTrips != without.RoundTrips+test.more || with.Commits != without.Commits || with.Rollbacks != 0 {
						t.Errorf("%s: %+v, without: %+v, want %d trips more", test.what, with, without, test.more)
					}
				}
			})
		}
	})
}

// Where nobody has migrated since the procedure for outputs is there, they are written without it.
func TestWithoutItsProcedureAnOutputCostsMore(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"own": true, "a caller's": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCounted(t, onMySQL, own)
			if _, err := c.admin.ExecContext(t.Context(), "DROP PROCEDURE millpond_emit_complete"); err != nil {
				t.Fatal(err)
			}
			more := 1
			if !own {
				more = 2
			}
			old := c.again(t, own)
			without, with := old.saying(t), old.saying(t, stores.Output{ID: "id", Topic: "topic"})
			if with.RoundTrips != without.RoundTrips+more || with.Commits != without.Commits {
				t.Errorf("with an output: %+v, without: %+v, want %d trips more", with, without, more)
			}
		})
	}
}
