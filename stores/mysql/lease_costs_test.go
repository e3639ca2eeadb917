package mysql_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/millpond-go/millpond/internal/leasetest"
	"github.com/millpond-go/millpond/stores/mysql"
)

func TestLeaseCosts(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for own, want := range map[bool]leasetest.Costs{
			true:  costs(12, 2, 4, 1),
			false: costs(19, 3, 5, 2), // the look is a transaction, too
		} {
			t.Run(fmt.Sprint("own ", own), func(t *testing.T) {
				t.Parallel()
				c := newCounted(t, p, own)
				got := leasetest.Measure(t, leasetest.Store{
					Store: c.Store, Consumer: billing,
					Write: func(ctx context.Context) error {
						tx, _ := mysql.TxFromContext(ctx)
						_, err := tx.ExecContext(ctx, effect)
						return err
					},
					Cost: func(f func()) leasetest.Cost {
						before := c.proxy.Stats()
						f()
						s := c.proxy.Stats().Since(before)
						return leasetest.Cost{Trips: s.RoundTrips, Commits: s.Commits}
					},
				})
				if got != want {
					t.Errorf("it costs %+v, want %+v", got, want)
				}
			})
		}
	})
}

// costs are those of a first delivery, of a renewal and a step, which commit once, and of a
// duplicate.
func costs(first, commits, more, duplicate int) leasetest.Costs {
	once := leasetest.Cost{Trips: more, Commits: 1}
	return leasetest.Costs{First: leasetest.Cost{Trips: first, Commits: commits}, Renewal: once, Step: once, Duplicate: leasetest.Cost{Trips: duplicate}}
}
