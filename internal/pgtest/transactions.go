package pgtest

import (
	"math"
	"testing"

	"github.com/millpond-go/millpond/internal/leasetest"
	"github.com/millpond-go/millpond/internal/pgproxy"
)

// LeaseCost returns what f costs. Statements that commit by themselves are no COMMIT that a
// proxy sees: the server counts all transactions that it has ended, those of looks, too, which
// have written nothing. query asks it on the one connection of the store.
func LeaseCost(tb testing.TB, proxy *pgproxy.Proxy, query func(sql string, to *int64) error) func(f func()) leasetest.Cost {
	tb.Helper()
	ended := func() (n int64) {
		for _, sql := range []string{
			"SELECT 0 FROM pg_stat_force_next_flush()",
			"SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()",
		} {
			if err := query(sql, &n); err != nil {
				tb.Fatal(err)
			}
		}
		return n
	}
	// A connection that has ended, such as the one that made the tables, may be counted late.
	own := int64(math.MaxInt64)
	for range 4 {
		before := ended()
		own = min(own, ended()-before)
	}
	return func(f func()) leasetest.Cost {
		was := ended()
		before := proxy.Stats()
		f()
		trips := proxy.Stats().Since(before).RoundTrips
		return leasetest.Cost{Trips: trips, Commits: int(ended() - was - own)}
	}
}
