package postgres_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/upgradetest"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Programs of the version before go on while its tables are migrated, and afterwards.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	address := testenv.VolatilePostgres(t).NewDatabase(t)
	fixture, err := os.ReadFile("testdata/schema_0003.sql")
	require.NoError(t, err)
	administer(t, address, string(fixture))
	s, err := postgres.Open(t.Context(), address)
	require.NoError(t, err)
	defer s.Close()
	old, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer old.Close(t.Context())
	upgradetest.Run(t, upgradetest.Old{Store: s, Deliver: func(id string) error {
		return pgx.BeginFunc(t.Context(), old, func(tx pgx.Tx) error {
			var at int64
			if err := tx.QueryRow(t.Context(), `INSERT INTO millpond_inbox (consumer, message_id, status, fingerprint, traceparent, completed_at)
SELECT $1, $2, 2, $3, $4, now() WHERE pg_try_advisory_xact_lock($5)
ON CONFLICT DO NOTHING RETURNING (extract(epoch from completed_at) * 1000000)::bigint`, upgradetest.Number, []byte(id), nil, nil, 1).Scan(&at); err != nil {
				return err
			}
			for _, text := range []string{
				fmt.Sprintf(upgradetest.Failure, id+" failed", "now()"), fmt.Sprintf(upgradetest.Output, id, "now()"),
				"INSERT INTO millpond_inbox (consumer, message_id, status) VALUES (2970855629233269707, '" + id + " failed', 4)",
			} {
				if _, err := tx.Exec(t.Context(), text); err != nil {
					return err
				}
			}
			return nil
		})
	}})
}
