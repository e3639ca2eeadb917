package crash

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// newSkewedPostgres is a database whose clock is days away from that of all workers: its
// own functions are replaced, since the store's statements name them and no others.
func newSkewedPostgres(skew time.Duration) opener {
	return func(t *testing.T) *system {
		t.Helper()
		url := testenv.VolatilePostgres(t).NewDatabase(t)
		admin := openAdmin(t, withParameter(t, url, "allow_system_table_mods", "on"))
		statements := []string{"CREATE SCHEMA unskewed"}
		for name, symbol := range map[string]string{
			"now": "now", "transaction_timestamp": "now", "statement_timestamp": "statement_timestamp", "clock_timestamp": "clock_timestamp",
		} {
			statements = append(statements,
				fmt.Sprintf("CREATE FUNCTION unskewed.%s() RETURNS timestamptz STABLE LANGUAGE internal AS '%s'", name, symbol),
				fmt.Sprintf("CREATE OR REPLACE FUNCTION pg_catalog.%s() RETURNS timestamptz STABLE LANGUAGE sql AS $$ SELECT unskewed.%[1]s() + interval '%d seconds' $$", name, int(skew.Seconds())))
		}
		for _, statement := range statements {
			if _, err := admin.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := admin.Close(); err != nil {
			t.Fatal(err)
		}
		return onPostgres(t, "postgres", url)
	}
}

// TestClocksDaysApart: whatever the clocks of workers and database say, what is due is
// due by the database's alone.
func TestClocksDaysApart(t *testing.T) {
	t.Parallel()
	const days = 24 * time.Hour
	skews := map[string]time.Duration{"behind": -3 * days, "ahead": 3 * days}
	for _, name := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(skews))...) {
		t.Run(name, func(t *testing.T) {
			skew := skews[name]
			t.Parallel()
			seed := seedOf(t)
			tr := &trial{
				system: newSkewedPostgres(skew)(t),
				orders: planted(workload(seed, 40, mix{share: map[conduct]int{flaky: 25, once: 10, panics: 5, exits: 2, hopeless: 10}}), 2, hopeless),
				setup:  setup{Redelivered: true},
				Config: fleet.Config{Seed: seed, Kills: killsAt(seed, []string{pointDue, pointTakeoverEnd, pointCounted}, 1, 3)},
			}
			r := tr.run(t)
			r.must(t)
			t.Log(r.summary())
			var far int
			err := tr.system.admin.QueryRowContext(t.Context(), `SELECT count(*) FROM millpond_failure
WHERE least(first_at, last_at, budget_at) < now() - interval '1 hour' OR greatest(first_at, last_at, budget_at) > now()`).Scan(&far)
			if err != nil || far > 0 || len(r.failures) == 0 {
				t.Errorf("%d of %d failures have times that are not the database's: %v", far, len(r.failures), err)
			}
			var apart float64
			err = tr.system.admin.QueryRowContext(t.Context(), `SELECT extract(epoch FROM max(last_at) - unskewed.now()) FROM millpond_failure`).Scan(&apart)
			if off := time.Duration(apart*float64(time.Second)) - skew; err != nil || off.Abs() > time.Hour {
				t.Errorf("the database's clock was not %s away: %s, %v", skew, off+skew, err)
			}
		})
	}
}

// TestStoresAreToldNoTimes: what an inbox or a retry worker hands to its store contains
// durations, never a point in time of the local clock's. What the broker said is none.
func TestStoresAreToldNoTimes(t *testing.T) {
	t.Parallel()
	for _, contract := range []reflect.Type{
		reflect.TypeFor[stores.Inbox](), reflect.TypeFor[stores.Registry](), reflect.TypeFor[stores.Quarantine](),
		reflect.TypeFor[stores.Failures](), reflect.TypeFor[stores.Retries](), reflect.TypeFor[stores.Resolver](), reflect.TypeFor[stores.LeaseInbox](),
	} {
		for method := range contract.Methods() {
			for in := range method.Type.Ins() {
				if holdsTime(in) {
					t.Errorf("%s.%s is given a %s, which holds a time.Time", contract, method.Name, in)
				}
			}
		}
	}
}

func holdsTime(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[time.Time]():
		return true
	case reflect.TypeFor[stores.Facts](): // what the broker said of a message: kept, and compared with nothing
		return false
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holdsTime(t.Elem())
	case reflect.Map:
		return holdsTime(t.Key()) || holdsTime(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if t == reflect.TypeFor[stores.Claim]() && field.Name == "Time" {
				continue // when the broker took the message: compared with what was purged
			}
			if holdsTime(field.Type) {
				return true
			}
		}
	default:
	}
	return false
}
