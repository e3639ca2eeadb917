package sqldb_test

import (
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// The server itself says which names of ours it looks for: every one that is not qualified
// meets a trap.
func TestStatementsNameWhatIsTheServersOwn(t *testing.T) {
	t.Parallel()
	for _, e := range []entry{connector, callersPG, callersPQ} {
		address := testenv.VolatilePostgres(t).NewDatabase(t)
		admin, err := connector.open(address)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		if _, err := admin.ExecContext(t.Context(), pgtest.Traps); err != nil {
			t.Fatal(err)
		}
		db, err := e.open(pgtest.WithParameters(t, address, "search_path", "traps,public,pg_catalog"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		e.config.Schema = "public"
		s, err := sqldb.New(db, e.config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		pgtest.Tour(t, s, func(stores.Attempt) {})
		pgtest.Listens(t, s)
	}
}

// Whoever may create something in public gets nothing run under the names of our tables.
func TestTablesThatOthersHavePlantedAreNotUsed(t *testing.T) {
	t.Parallel()
	pgtest.Planted(t, func(t *testing.T, address string) stores.Store {
		t.Helper()
		db, err := callersPQ.open(address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		s, err := sqldb.New(db, callersPQ.config)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
