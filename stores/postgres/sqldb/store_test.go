package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// newStore returns a store of an entry on an address, with the consumer registered and
// a table for effects.
func newStore(t *testing.T, e entry, address string) *sqldb.Store {
	t.Helper()
	db, err := e.open(address)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqldb.New(db, e.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS effect (key text, label text)"); err != nil {
		t.Fatal(err)
	}
	return store
}

func begin(t *testing.T, s *sqldb.Store, c stores.Claim) (stores.Attempt, *sql.Tx) {
	t.Helper()
	return pgtest.Begin(t, s, c, sqldb.TxFromContext)
}

func effects(t *testing.T, s *sqldb.Store) (n int) {
	t.Helper()
	if err := s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM effect").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// some returns the n entries whose turn it is.
func some(t *testing.T, n int, all ...entry) map[string]entry {
	t.Helper()
	named := make(map[string]entry)
	for _, e := range all {
		named[e.name] = e
	}
	return rotation.Some(t, n, named)
}

// entries runs a test with two ways to a *sql.DB, by turns.
func entries(t *testing.T, test func(t *testing.T, e entry)) {
	t.Helper()
	t.Parallel()
	for _, e := range some(t, 2, connector, callersPG, callersPG.unproven(), callersPQ, callersPQ.unproven()) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

// A commit that is not proven must not be taken for one that is.
func TestCapabilitiesSayWhatCommitsProve(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		entry entry
		want  bool
	}{{connector, false}, {callersPG, false}, {callersPG.unproven(), true}, {callersPQ.unproven(), true}} {
		db, err := test.entry.open("postgres://nobody@127.0.0.1:1/none")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		store, err := sqldb.New(db, test.entry.config)
		if err != nil {
			t.Fatal(err)
		}
		if c := store.Capabilities(); c.CommitUnproven != test.want || !c.ServerBound {
			t.Errorf("%s: %+v", test.entry.name, c)
		}
	}
}

// The context of Begin bounds nothing else.
func TestAttemptOutlivesTheContextOfBegin(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
		ctx, cancel := context.WithCancel(t.Context())
		a, _, err := s.Begin(ctx, pgtest.Claim("a"))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		tx, _ := sqldb.TxFromContext(a.Context(t.Context()))
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO effect VALUES ('a', 'done')"); err != nil {
			t.Fatal(err)
		}
		// A rollback by database/sql comes from a goroutine of its own: give it time.
		for range 50 {
			if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(a.Commit(t.Context()), a.Commit(t.Context()), a.Rollback(t.Context())); err != nil {
			t.Fatal(err)
		}
		if v := pgtest.Verdict(t, s, pgtest.Claim("a")); v.Outcome != stores.Duplicate || effects(t, s) != 1 {
			t.Fatal(v.Outcome)
		}
	})
}

// Nothing of a connection may be left with an attempt that has ended.
func TestConnectionsComeBack(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
		ends := map[string]func(stores.Attempt, *sql.Tx){
			"commit":        func(a stores.Attempt, _ *sql.Tx) { _ = a.Commit(t.Context()) },
			"rollback":      func(a stores.Attempt, _ *sql.Tx) { _ = a.Rollback(t.Context()) },
			"own commit":    func(a stores.Attempt, tx *sql.Tx) { _ = tx.Commit(); _ = a.Commit(t.Context()) },
			"own rollback":  func(a stores.Attempt, tx *sql.Tx) { _ = tx.Rollback(); _ = a.Rollback(t.Context()) },
			"ended context": func(a stores.Attempt, _ *sql.Tx) { _ = a.Commit(ended(t)) },
			"hidden error": func(a stores.Attempt, tx *sql.Tx) {
				_, _ = tx.ExecContext(t.Context(), "SELECT 1/0")
				_ = a.Commit(t.Context())
			},
		}
		for name, end := range ends {
			for range 3 {
				a, tx := begin(t, s, pgtest.Claim(name+time.Now().String()))
				end(a, tx)
				if use := s.PoolUse(); use.InUse != 0 {
					t.Fatalf("%s: %+v", name, use)
				}
				if _, err := tx.ExecContext(t.Context(), "SELECT 1"); !errors.Is(err, sql.ErrTxDone) {
					t.Fatalf("%s: the transaction is still usable: %v", name, err)
				}
			}
		}
		for _, v := range []stores.Verdict{pgtest.Verdict(t, s, pgtest.Claim("again")), pgtest.Verdict(t, s, pgtest.Claim("again"))} {
			if v.Outcome != stores.Claimed || s.PoolUse().InUse != 0 {
				t.Fatalf("%v, %+v", v.Outcome, s.PoolUse())
			}
		}
	})
}

func ended(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	db, err := sqldb.OpenDB("postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, c := range map[string]sqldb.Config{
		"TablePrefix": {TablePrefix: `a"; DROP TABLE users; --`},
		"Schema":      {Schema: "Über"},
		"Isolation":   {Isolation: sql.LevelLinearizable},
	} {
		if _, err := sqldb.New(db, c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := sqldb.New(nil, sqldb.Config{}); err == nil {
		t.Error("a nil *sql.DB was taken")
	}
}

func TestURLErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	pgtest.ErrorsHide(t, "canary",
		"postgres+sql://user:canary@127.0.0.1:1/db",
		"postgresql+sql://user:canary@127.0.0.1:1/db?sslmode=nonsense",
		"postgres+sql://user:canary@127.0.0.1:notaport/db",
		"postgres+sql://user:canary@127.0.0.1:1/db?millpond_prefix=a-b",
		"postgres+sql://user:canary@127.0.0.1:1/db?millpond_shema=typo",
		"postgres+sql://user@127.0.0.1:1/db?pgbouncer=canary",
		"postgres+sql://user:canary@127.0.0.1:1/db?pgbouncer=transaction&default_query_exec_mode=cache_statement",
		"postgres+sql://user@127.0.0.1:1/db?sslmode=verify-full;password=canary",
	)
}

func TestURLOpens(t *testing.T) {
	t.Parallel()
	address := testenv.VolatilePostgres(t).NewDatabase(t)
	s, err := stores.Open(t.Context(), pgtest.WithParameters(t, strings.Replace(address, "://", "+sql://", 1), "pool_max_conns", "3"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if pool := s.Capabilities().Pool; pool.Max != 3 || pool.Setting != "pool_max_conns" {
		t.Errorf("%+v", pool)
	}
}

func TestClaimThatIsContendedStopsNoOther(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		address := testenv.VolatilePostgres(t).NewDatabase(t)
		pgtest.Contended(t, newStore(t, e, address), address)
	})
}
