package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Whoever forgets the parameter is told so, and not left alone with the server's words.
func TestPoolerThatIsNotNamedIsSuspected(t *testing.T) {
	t.Parallel()
	address := testenv.VolatilePostgres(t).NewDatabase(t)
	openStore(t, address)
	pooler := testenv.PgBouncer(t, address)
	var errs []error
	for range 2 { // clients that meet on one connection to the server
		s, err := postgres.Open(t.Context(), pooler.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		errs = append(errs, s.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}))
	}
	if err := errors.Join(errs...); !errors.Is(err, stores.ErrUnavailable) || !strings.Contains(err.Error(), "pgbouncer=transaction") {
		t.Errorf("%v", err)
	}
}

// A pooler in statement mode answers, and lets nothing begin: waiting is of no use.
func TestPoolerInStatementModeIsNamed(t *testing.T) {
	t.Parallel()
	address := testenv.VolatilePostgres(t).NewDatabase(t)
	openStore(t, address)
	pooler := testenv.PgBouncer(t, address, testenv.WithPgBouncerSettings(map[string]string{"pool_mode": "statement"}))
	told := pgtest.WithParameters(t, pooler.URL(), "pgbouncer", "transaction")
	s, err := postgres.Open(t.Context(), told)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const want = "a pooler in statement mode is in between"
	if err := s.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}); err == nil || errors.Is(err, stores.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	if found := whats(serious(examine(t, told, stores.Examination{}))); !strings.Contains(found, want) {
		t.Errorf("%q", found)
	}
}

func TestNothingListensBehindAPooler(t *testing.T) {
	t.Parallel()
	pooler := testenv.PgBouncer(t, testenv.VolatilePostgres(t).NewDatabase(t))
	s := openStore(t, pgtest.WithParameters(t, pooler.URL(), "pgbouncer", "transaction"))
	if err := s.Listen(t.Context(), func() { t.Error("woken") }); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	if !s.Capabilities().SessionShared {
		t.Error("the session behind a pooler is not ours to close, and the capabilities do not say so")
	}
}
