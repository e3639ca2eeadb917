package postgres_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
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
	upgradetest.Run(t, upgradetest.Old{Store: s, Deliver: deliversAsBefore(t, old)})
}

// deliversAsBefore handles messages by the statements of the version before.
func deliversAsBefore(t *testing.T, old *pgx.Conn) func(id string) error {
	t.Helper()
	return func(id string) error {
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
	}
}

// A migration of a large inbox keeps no delivery waiting, whatever else uses the tables.
func TestMigrationKeepsNoDeliveryWaiting(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	fixture, err := os.ReadFile("testdata/schema_0003.sql")
	require.NoError(t, err)
	busy := func(rows int) (*postgres.Store, upgradetest.Busy) {
		address := testenv.VolatilePostgres(t).NewDatabase(t)
		administer(t, address, string(fixture))
		administer(t, address, fmt.Sprintf(`INSERT INTO millpond_inbox (completed_at, consumer, status, message_id, fingerprint)
SELECT now() - n * interval '1 second', %d, 2, convert_to('u:' || md5(n::text), 'UTF8'), decode(md5(n::text) || md5(n::text), 'hex') FROM generate_series(1, %d) n`, upgradetest.Number, rows))
		s, err := postgres.Open(t.Context(), address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		connect := func() *pgx.Conn {
			conn, err := pgx.Connect(t.Context(), address)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
			return conn
		}
		handler, admin := connect(), connect()
		return s, upgradetest.Busy{
			Deliver: deliversAsBefore(t, connect()),
			Begin: func() (func() error, error) {
				_, err := handler.Exec(t.Context(), "BEGIN; SELECT FROM millpond_consumer, millpond_inbox, millpond_failure, millpond_quarantine, millpond_outbox LIMIT 1")
				return func() error { _, err := handler.Exec(t.Context(), "COMMIT"); return err }, err
			},
			Migrate: func() error { _, err := s.Migrate(t.Context()); return err },
			File: func() (file string, err error) {
				err = admin.QueryRow(t.Context(), "SELECT pg_relation_filepath('millpond_inbox')").Scan(&file)
				return file, err
			},
		}
	}
	_, kept := busy(upgradetest.Rows())
	s, broken := busy(1000)
	broken.Migrate = func() error {
		text := "ALTER TABLE millpond_inbox ALTER COLUMN status TYPE integer;"
		for _, m := range s.Migrations()[3:] {
			text += m.SQL
		}
		_, err := s.Pool().Exec(t.Context(), text)
		return err
	}
	upgradetest.Bounded(t, kept, broken)
}
