package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A server of a good name whose locks do not lock is found out before a message is handled.
func TestServersMustProveThatTheyLock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		plant []string
		says  string
	}{
		"locks": {
			[]string{
				"ALTER FUNCTION pg_catalog.pg_try_advisory_xact_lock(bigint) RENAME TO former_try",
				"CREATE FUNCTION pg_catalog.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
			},
			"it gives one lock to two connections",
		},
		"keys": {
			[]string{"ALTER TABLE millpond_inbox DROP CONSTRAINT millpond_inbox_pkey"},
			"it inserts a key that another transaction is inserting",
		},
		"a function": {
			[]string{"ALTER FUNCTION pg_catalog.pg_try_advisory_xact_lock(bigint) RENAME TO former_try"},
			"it lacks what claims are made of",
		},
		"Citus": {
			[]string{
				"SET allow_system_table_mods = on", "CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid oid, partmethod \"char\")",
				"INSERT INTO pg_catalog.pg_dist_partition VALUES ('millpond_inbox'::regclass, 'h')",
			},
			"Citus has distributed public.millpond_inbox",
		},
		"an unknown name": {
			[]string{
				"ALTER FUNCTION pg_catalog.version() RENAME TO former_version",
				"CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'Materialise 1.0'::text $$",
			},
			`it calls itself "Materialise"`,
		},
	} {
		address := testenv.VolatilePostgres(t).NewDatabase(t)
		openStore(t, address) // and migrates
		administer(t, address, test.plant...)
		s, err := postgres.Open(t.Context(), address)
		require.NoError(t, err)
		defer s.Close()
		for range 2 {
			for _, err := range []error{s.Validate(t.Context()), s.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"})} {
				require.ErrorContains(t, err, test.says, name)
				require.NotErrorIs(t, err, stores.ErrUnavailable, name)
			}
		}
		var left int
		require.NoError(t, s.Pool().QueryRow(t.Context(), "SELECT count(*) FROM millpond_inbox").Scan(&left))
		require.Zero(t, left, name)

		better, err := postgres.Open(t.Context(), pgtest.WithParameters(t, address, "millpond_server", "any"))
		require.NoError(t, err)
		defer better.Close()
		require.NoError(t, better.Validate(t.Context()), name)
		found := whats(examine(t, pgtest.WithParameters(t, address, "millpond_server", "any"), stores.Examination{}))
		require.Contains(t, found, "millpond_server=any is set", name)
		require.Contains(t, found, test.says, name)
	}
	_, err := postgres.Open(t.Context(), "postgres://db/app?millpond_server=tidb")
	require.ErrorContains(t, err, "write millpond_server=any")
}

// The proof is made once, and nothing of it is left.
func TestTheProofIsMadeOnce(t *testing.T) {
	t.Parallel()
	address := testenv.VolatilePostgres(t).NewDatabase(t)
	openStore(t, address) // and migrates
	proxy, err := pgproxy.Start(address)
	require.NoError(t, err)
	defer proxy.Close()
	validate := func(s *postgres.Store) pgproxy.Stats {
		before := proxy.Stats()
		require.NoError(t, s.Validate(t.Context()))
		return proxy.Stats().Since(before)
	}
	open := func(parameters ...string) *postgres.Store {
		s, err := postgres.Open(t.Context(), pgtest.WithParameters(t, proxy.URL(), parameters...))
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	without, s := open("millpond_server", "any"), open()
	least, first, second := validate(without), validate(s), validate(s)
	t.Logf("%+v without, %+v with, %+v again", least, first, second)
	require.LessOrEqual(t, first.RoundTrips-least.RoundTrips, 24) // prepared statements and two new connections included
	require.Equal(t, least.Commits, first.Commits)
	require.LessOrEqual(t, second.RoundTrips, least.RoundTrips)
	var left int
	require.NoError(t, s.Pool().QueryRow(t.Context(), "SELECT count(*) FROM millpond_inbox").Scan(&left))
	require.Zero(t, left)
}
