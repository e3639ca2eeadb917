package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// faulty is a driver around lib/pq that does something else than what one of its calls is
// there for, once.
type faulty struct {
	driver.Connector

	call    string
	instead func()
}

func (f *faulty) meet(call string) {
	if f.call == call {
		f.call = ""
		f.instead()
	}
}

func (f *faulty) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyConn{conn.(pqConn), f}, nil //nolint:forcetypeassert // it is lib/pq's
}

// pqConn is what database/sql and the store use of lib/pq's connections.
type pqConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.QueryerContext
	driver.ExecerContext
	driver.Validator
}

type faultyConn struct {
	pqConn

	f *faulty
}

func (c *faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.f.meet("BEGIN")
	tx, err := c.pqConn.BeginTx(ctx, opts)
	return &faultyTx{tx, c.f}, err
}

type faultyTx struct {
	driver.Tx

	f *faulty
}

func (tx *faultyTx) Commit() error {
	tx.f.meet("COMMIT")
	return tx.Tx.Commit()
}

func (tx *faultyTx) Rollback() error {
	tx.f.meet("ROLLBACK")
	return tx.Tx.Rollback()
}

// The store calls drivers on goroutines that nobody else recovers.
func TestDriverThatPanicsEndsNoProcess(t *testing.T) {
	t.Parallel()
	for name, instead := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		f := &faulty{instead: instead}
		s := newStore(t, entry{open: func(address string) (*sql.DB, error) {
			inner, err := pq.NewConnector(address)
			f.Connector = inner
			return sql.OpenDB(f), err
		}, config: sqldb.Config{ProveCommit: true}}, testenv.Postgres(t).NewDatabase(t))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()

		a, tx := begin(t, s, pgtest.Claim("commit"))
		if err := insert(ctx, tx); err != nil {
			t.Fatal(err)
		}
		f.call = "COMMIT"
		if err := a.Commit(ctx); !errors.Is(err, stores.ErrCommitUnknown) || errors.Is(err, stores.ErrNotCommitted) {
			t.Errorf("%s in COMMIT: %v", name, err)
		}
		comesAgain(t, s, pgtest.Claim("commit"))

		a, tx = begin(t, s, pgtest.Claim("rollback"))
		if err := insert(ctx, tx); err != nil {
			t.Fatal(err)
		}
		f.call = "ROLLBACK"
		if err := a.Rollback(ctx); err == nil || errors.Is(err, stores.ErrCommitUnknown) {
			t.Errorf("%s in ROLLBACK: %v", name, err)
		}
		if escaped, err := a.(stores.Escapable).Escaped(ctx); err != nil || escaped { //nolint:forcetypeassert // a panic is a failure too
			t.Errorf("%s in ROLLBACK: %v, %v", name, escaped, err)
		}
		comesAgain(t, s, pgtest.Claim("rollback"))

		f.call = "BEGIN"
		if _, _, err := s.Begin(ctx, pgtest.Claim("begin")); !errors.Is(err, stores.ErrUnavailable) {
			t.Errorf("%s in BEGIN: %v", name, err)
		}
		comesAgain(t, s, pgtest.Claim("begin"))
		if n := effects(t, s); n != 0 || ctx.Err() != nil {
			t.Errorf("%s: %d effects, %v", name, n, ctx.Err())
		}
	}
}
