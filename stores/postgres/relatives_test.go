package postgres_test

import (
	"errors"
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// What answers here is PostgreSQL under another name: the name is all that is looked at.
func TestServersThatOnlySpeakTheProtocolAreRefused(t *testing.T) {
	t.Parallel()
	renamed := func(version string) []string {
		return []string{
			"ALTER FUNCTION pg_catalog.version() RENAME TO former_version",
			"CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql STABLE AS $$ SELECT '" + version + "' $$",
		}
	}
	for name, test := range map[string]struct {
		texts []string
		says  string
	}{
		"CockroachDB": {
			renamed("CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, built 2025/06/04)"),
			"postgres: the server is CockroachDB, which lacks working advisory locks, xmin and NOTIFY; use PostgreSQL 13 or later",
		},
		"YugabyteDB": {
			renamed("PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang"),
			"postgres: the server is YugabyteDB, which lacks xmin, and numbers in the order in which rows are written; use PostgreSQL 13 or later",
		},
		"Aurora DSQL": {
			[]string{"CREATE SCHEMA sys", "CREATE VIEW sys.iam_pg_role_mappings AS SELECT 1"},
			"postgres: the server is Aurora DSQL, which lacks locks before COMMIT, and savepoints; use PostgreSQL 13 or later",
		},
	} {
		address := testenv.VolatilePostgres(t).NewDatabase(t)
		administer(t, address, test.texts...)
		s, err := postgres.Open(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, migrateErr := s.Migrate(t.Context())
		_, appliedErr := s.Applied(t.Context())
		_, backlogErr := s.Backlog(t.Context(), 1)
		for _, err := range []error{
			migrateErr, appliedErr, backlogErr, s.Validate(t.Context()), s.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}),
		} {
			if err == nil || err.Error() != test.says || errors.Is(err, stores.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		var tables int
		if err := s.Pool().QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relname LIKE 'millpond%'").Scan(&tables); err != nil || tables > 0 {
			t.Errorf("%s: %d tables, %v", name, tables, err)
		}
	}
}
