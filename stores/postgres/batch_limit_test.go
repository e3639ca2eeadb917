package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// The batches of one process leave most of the server's room for locks to others.
func TestTheServersRoomForLocksLimitsBatches(t *testing.T) {
	t.Parallel()
	server := testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{
		"max_locks_per_transaction": "110", "max_connections": "60", "max_prepared_transactions": "20",
	}))
	address := server.NewDatabase(t)
	s := openStore(t, address)
	const most = 110 * (60 + 20) / 40
	for concurrent, want := range map[int]int{0: most, 1: most, 3: most / 3, 4: most / 4, most: 1, most + 1: 0} {
		require.Equal(t, want, s.BatchLimit(concurrent), "%d batches at once", concurrent)
	}
	strict := openStore(t, pgtest.WithParameters(t, address, "default_transaction_isolation", "serializable"))
	require.Equal(t, most, strict.BatchLimit(1), "the store's transactions have their own level")
	for level, want := range map[pgx.TxIsoLevel]int{"": most, pgx.ReadCommitted: most, pgx.RepeatableRead: 0, pgx.Serializable: 0} {
		other, err := postgres.New(s.Pool(), postgres.Config{Isolation: level})
		require.NoError(t, err)
		t.Cleanup(func() { _ = other.Close() })
		require.Zero(t, other.BatchLimit(1), "%q: nobody has asked the server", level)
		require.NoError(t, other.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}))
		require.Equal(t, want, other.BatchLimit(1), "%q", level)
	}
}
