package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	modernc "modernc.org/sqlite"

	"github.com/millpond-go/millpond/stores"
)

const (
	endlessRead  = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
	endlessWrite = "INSERT INTO effects WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
)

// stand_still blocks inside of SQLite, where no interrupt reaches, until resume is sent to.
// It sends to standing before.
var standing, resume = make(chan struct{}), make(chan struct{})

func init() {
	modernc.MustRegisterFunction("stand_still", &modernc.FunctionImpl{
		Scalar: func(*modernc.FunctionContext, []driver.Value) (driver.Value, error) {
			standing <- struct{}{}
			<-resume
			return int64(1), nil
		},
	})
}

// The ways to send a statement, each ending with the statement's error.
var senders = map[string]func(ctx context.Context, tx *sql.Tx) error{
	"exec": func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, endlessWrite)
		return err
	},
	"query": func(ctx context.Context, tx *sql.Tx) error {
		var n int
		return tx.QueryRowContext(ctx, endlessRead).Scan(&n)
	},
	"prepared exec": func(ctx context.Context, tx *sql.Tx) error {
		s, err := tx.PrepareContext(ctx, endlessWrite)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.ExecContext(ctx)
		return err
	},
	"prepared query": func(ctx context.Context, tx *sql.Tx) error {
		s, err := tx.PrepareContext(ctx, endlessRead)
		if err != nil {
			return err
		}
		defer s.Close()
		var n int
		return s.QueryRowContext(ctx).Scan(&n)
	},
}

// eachSender runs f for every way to send, without and with a context of the handler's.
func eachSender(t *testing.T, f func(t *testing.T, send func(tx *sql.Tx) error)) {
	t.Helper()
	for name, send := range senders {
		t.Run(name, func(t *testing.T) {
			f(t, func(tx *sql.Tx) error { return send(context.Background(), tx) })
		})
		t.Run(name+" with a context", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f(t, func(tx *sql.Tx) error { return send(ctx, tx) })
		})
	}
}

// A statement that never ends, in a goroutine left behind, does not keep the writer.
func TestLeftStatementIsInterrupted(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, a stores.Attempt){
		"commit": func(t *testing.T, a stores.Attempt) {
			err := a.Commit(within(t, 30*time.Second))
			require.ErrorIs(t, err, stores.ErrNotCommitted)
			require.ErrorIs(t, err, stores.ErrTxBusy)
		},
		"rollback": func(t *testing.T, a stores.Attempt) {
			require.NoError(t, a.Rollback(within(t, 30*time.Second)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachSender(t, func(t *testing.T, send func(tx *sql.Tx) error) {
				o := open(t)
				a := o.begin(claimOf("a"))
				o.effect(a, "before")
				tx, left := txOf(t, a), make(chan error, 1)
				go func() { left <- send(tx) }()
				require.Eventually(t, a.(*attempt).conn.inUse, 30*time.Second, time.Millisecond)
				end(t, a)

				next, verdict, err := o.Begin(within(t, 30*time.Second), claimOf("a"))
				require.NoError(t, err, "the writer is free")
				require.Equal(t, stores.Claimed, verdict.Outcome)
				require.ErrorIs(t, <-left, sql.ErrTxDone)
				o.effect(next, "after")
				require.NoError(t, next.Commit(t.Context()))
				o.requireCounts(1, 1)
			})
		})
	}
}

// What the handler sends without a deadline is ended at the bound.
func TestStatementEndsAtTheBound(t *testing.T) {
	eachSender(t, func(t *testing.T, send func(tx *sql.Tx) error) {
		o := open(t)
		c := claimOf("a")
		c.Bound = 50 * time.Millisecond
		a := o.begin(c)
		tx, sent := txOf(t, a), make(chan error, 1)
		go func() { sent <- send(tx) }()
		select {
		case err := <-sent:
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "bound")
		case <-time.After(30 * time.Second):
			require.Fail(t, "the statement goes on")
		}
		require.NoError(t, a.Rollback(t.Context()))
		o.complete(claimOf("a"))
		o.requireCounts(1, 1)
	})
}

// The bound belongs to one attempt.
func TestBoundOfAnEarlierAttempt(t *testing.T) {
	o := open(t)
	c := claimOf("a")
	c.Bound = 20 * time.Millisecond
	o.complete(c)
	a := o.begin(claimOf("b"))
	<-within(t, 2*c.Bound).Done()
	o.effect(a, "done")
	require.NoError(t, a.Commit(t.Context()))
	o.requireCounts(2, 2)
}

// The handler's own deadline is reported as such, whatever the bound.
func TestDeadlineBeforeTheBound(t *testing.T) {
	for name, send := range senders {
		t.Run(name, func(t *testing.T) {
			o := open(t)
			c := claimOf("a")
			c.Bound = time.Hour
			a := o.begin(c)
			err := send(within(t, 20*time.Millisecond), txOf(t, a))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotContains(t, err.Error(), "bound")
			require.NoError(t, a.Rollback(t.Context()))
		})
	}
}
