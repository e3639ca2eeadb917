package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	native "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// faulty is a driver that does something else than what one of its calls is there for, once.
type faulty struct {
	driver.Connector

	call    string
	instead func()
}

func (f *faulty) meet(call string) {
	if f.call != "" && (strings.Contains(call, f.call) || f.call == "COMMIT" && strings.Contains(call, "complete")) {
		f.call = ""
		f.instead()
	}
}

func (f *faulty) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &faultyConn{conn.(nativeConn), f}, nil //nolint:forcetypeassert // it is the driver's
}

// nativeConn is what database/sql and the store use of the driver's connections.
type nativeConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.QueryerContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Validator
}

type faultyConn struct {
	nativeConn

	f *faulty
}

func (c *faultyConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.f.meet(text)
	return c.nativeConn.ExecContext(ctx, text, args)
}

func (c *faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.nativeConn.BeginTx(ctx, opts)
	return &faultyTx{tx, c.f}, err
}

type faultyTx struct {
	driver.Tx

	f *faulty
}

func (tx *faultyTx) Rollback() error {
	tx.f.meet("the driver's ROLLBACK")
	return tx.Tx.Rollback()
}

func (tx *faultyTx) Commit() error {
	tx.f.meet("the driver's COMMIT")
	return tx.Tx.Commit()
}

// The store calls drivers on goroutines that nobody else recovers.
func TestDriverThatPanicsEndsNoProcess(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for name, instead := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
			c := newCounted(t, p, false)
			connector, err := native.NewConnector(mustParse(t, c.proxy.URL()))
			require.NoError(t, err)
			f := &faulty{Connector: connector, instead: instead}
			db := sql.OpenDB(f)
			t.Cleanup(func() { _ = db.Close() })
			s, err := mysql.New(db, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()

			a := begin(t, s, claimOf("commit"))
			f.call = "COMMIT"
			if err := a.Commit(ctx); !errors.Is(err, stores.ErrCommitUnknown) || errors.Is(err, stores.ErrNotCommitted) {
				t.Errorf("%s in COMMIT: %v", name, err)
			}
			a = begin(t, s, claimOf("rollback"))
			f.call = "the driver's ROLLBACK"
			if err := a.Rollback(ctx); err == nil || errors.Is(err, stores.ErrCommitUnknown) {
				t.Errorf("%s in ROLLBACK: %v", name, err)
			}
			for _, id := range []string{"commit", "rollback"} { // their claims go with the connections
				begun := beginOnceFree(t, s, claimOf(id))
				require.NoError(t, begun.Commit(ctx))
			}
			if name == "panic" { // the goroutine is the caller's
				a = begin(t, s, claimOf("after"))
				f.call = "the driver's COMMIT"
				if err := a.Commit(ctx); err != nil {
					t.Errorf("%s after COMMIT: %v", name, err)
				}
			}
			if ctx.Err() != nil {
				t.Error(name, ctx.Err())
			}
		}
	})
}
