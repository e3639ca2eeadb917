package postgres_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/leasetest"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/stores/postgres"
)

func TestLeaseCosts(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, quietServer(t)) // on a shared one the transactions of autovacuum are counted, too
	got := leasetest.Measure(t, leasetest.Store{
		Store: s, Consumer: pgtest.Stock,
		Write: func(ctx context.Context) error {
			tx, _ := postgres.TxFromContext(ctx)
			_, err := tx.Exec(ctx, insertEffect, uuid.NewString())
			return err
		},
		Cost: pgtest.LeaseCost(t, proxy, func(sql string, to *int64) error { return s.Pool().QueryRow(t.Context(), sql).Scan(to) }),
	})
	want := leasetest.Costs{First: leasetest.Cost{Trips: 4, Commits: 2 + 1}, Renewal: leasetest.Cost{Trips: 1, Commits: 1}, Step: leasetest.Cost{Trips: 1, Commits: 1}, Duplicate: leasetest.Cost{Trips: 1, Commits: 1}}
	if got != want {
		t.Errorf("it costs %+v, want %+v, with a look that has written nothing", got, want)
	}
}
