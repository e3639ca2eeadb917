package sqldb_test

import (
	"context"
	"testing"

	"github.com/millpond-go/millpond/internal/leasetest"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

func TestLeaseCosts(t *testing.T) {
	t.Parallel()
	// On a shared server the transactions of autovacuum are counted, too.
	server := testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{"autovacuum": "off"}))
	for _, test := range []struct {
		entry       entry
		first, more leasetest.Cost // what is not in a transaction commits by itself
	}{
		{connector, leasetest.Cost{Trips: 4, Commits: 3}, leasetest.Cost{Trips: 1, Commits: 1}},
		{callersPG.unproven(), leasetest.Cost{Trips: 7, Commits: 3}, leasetest.Cost{Trips: 1, Commits: 1}},
		{callersPG, leasetest.Cost{Trips: 8, Commits: 3}, leasetest.Cost{Trips: 1, Commits: 1}},
		// It prepares each statement, which ends a transaction, too.
		{callersPQ.unproven(), leasetest.Cost{Trips: 10, Commits: 5}, leasetest.Cost{Trips: 2, Commits: 2}},
		{callersPQ, leasetest.Cost{Trips: 11, Commits: 5}, leasetest.Cost{Trips: 2, Commits: 2}},
	} {
		t.Run(test.entry.name, func(t *testing.T) {
			t.Parallel()
			proxy, s := throughProxyTo(t, test.entry, server.NewDatabase(t))
			got := leasetest.Measure(t, leasetest.Store{
				Store: s, Consumer: pgtest.Stock,
				Write: func(ctx context.Context) error {
					tx, _ := sqldb.TxFromContext(ctx)
					return insert(ctx, tx)
				},
				Cost: pgtest.LeaseCost(t, proxy, func(sql string, to *int64) error { return s.DB().QueryRowContext(t.Context(), sql).Scan(to) }),
			})
			want := leasetest.Costs{First: test.first, Renewal: test.more, Step: test.more, Duplicate: test.more}
			if got != want {
				t.Errorf("it costs %+v, want %+v, with a look that has written nothing", got, want)
			}
		})
	}
}
