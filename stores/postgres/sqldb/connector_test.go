package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// The connector serves whatever else a program does with its *sql.DB.
func TestConnectorIsPgxForEverythingElse(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.VolatilePostgres(t).NewDatabase(t))
	db := s.DB()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		t.Fatal(err)
	}
	var level string
	if err := tx.QueryRowContext(t.Context(), "SHOW transaction_isolation").Scan(&level); err != nil || level != "serializable" {
		t.Errorf("%s, %v", level, err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO effect VALUES ($1, $2)", "a", "done"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil || effects(t, s) != 1 {
		t.Error(err, effects(t, s))
	}
	stmt, err := db.PrepareContext(t.Context(), "SELECT $1::int + 1")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	var n int
	if err := stmt.QueryRowContext(t.Context(), 1).Scan(&n); err != nil || n != 2 {
		t.Error(n, err)
	}
	// Also within a transaction that holds a claim.
	a, claiming := begin(t, s, pgtest.Claim("prepared"))
	if err := claiming.StmtContext(t.Context(), stmt).QueryRowContext(t.Context(), 2).Scan(&n); err != nil || n != 3 { //nolint:sqlclosecheck // the transaction closes it
		t.Error(n, err)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	err = conn.Raw(func(driverConn any) error {
		return driverConn.(interface{ Conn() *pgx.Conn }).Conn().Ping(t.Context()) //nolint:forcetypeassert // a panic is a failure too
	})
	if err != nil {
		t.Error(err)
	}
}

func TestListenIsForTheConnectorAlone(t *testing.T) {
	t.Parallel()
	address := testenv.VolatilePostgres(t).NewDatabase(t)
	s := newStore(t, connector, address)
	woken := make(chan struct{}, 16)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Listen(ctx, func() { woken <- struct{}{} }) }()
	<-woken // it listens now
	if err := s.Release(t.Context(), []stores.Retry{{}}); err != nil {
		t.Fatal(err)
	}
	<-woken
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, e := range []entry{callersPG, callersPQ} {
		if err := newStore(t, e, address).Listen(t.Context(), func() {}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", e.name, err)
		}
	}
}
