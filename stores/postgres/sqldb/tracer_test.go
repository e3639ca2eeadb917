package sqldb_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

func TestATracerThatPanicsKeepsNoConnection(t *testing.T) {
	t.Parallel()
	tracer := &pgtest.BrokenTracer{}
	s := newStore(t, entry{open: func(address string) (*sql.DB, error) {
		config, err := pgx.ParseConfig(address)
		if err != nil {
			return nil, err
		}
		config.Tracer = tracer
		return sql.OpenDB(sqldb.NewConnector(config)), nil
	}}, testenv.VolatilePostgres(t).NewDatabase(t))
	for name, end := range map[string]func(a stores.Attempt, tx *sql.Tx){
		"Rollback": func(a stores.Attempt, _ *sql.Tx) { _ = a.Rollback(t.Context()) },
		"Commit of what was aborted": func(a stores.Attempt, tx *sql.Tx) {
			_, err := tx.Exec("SELECT 1 / $1::int", 0)
			require.Error(t, err)
			_ = a.Commit(t.Context())
		},
	} {
		a, tx := begin(t, s, pgtest.Claim("traced "+name))
		tracer.Armed.Store(true)
		require.Panics(t, func() { end(a, tx) }, name)
		tracer.Armed.Store(false)
		require.Eventually(t, func() bool { return s.DB().Stats().InUse == 0 }, 10*time.Second, 10*time.Millisecond, name)
	}
}

type brokenValue struct{}

func (brokenValue) Value() (driver.Value, error) { panic("a value") }

// database/sql keeps a transaction locked after a query that panics.
func TestAQueryThatPanicsKeepsNoConnection(t *testing.T) {
	t.Parallel()
	s := newStore(t, entry{open: sqldb.OpenDB}, testenv.VolatilePostgres(t).NewDatabase(t))
	broken := func(tx *sql.Tx) {
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT $1::int", brokenValue{}).Scan(&n); err == nil {
			t.Error("no error")
		}
	}
	over := make(chan struct{})
	a, tx := begin(t, s, pgtest.Claim("alone"))
	b := beginBatch(t, s, "leaves")
	go func() {
		defer close(over)
		broken(tx)
		if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) {
			t.Error(err)
		}
		m := b.Members()[0]
		broken(memberTx(t, m))
		_ = m.Leave(t.Context())
		_ = b.Rollback(t.Context())
	}()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("an attempt does not end")
	}
	require.Eventually(t, func() bool { return s.DB().Stats().InUse == 0 }, 10*time.Second, 10*time.Millisecond)
	comesAgain(t, s, pgtest.Claim("alone"))
}
