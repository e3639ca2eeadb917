package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/stores/storetest"
)

// ways are the calls of a *sql.Tx that take SQL text.
func (e entry) ways() []storetest.Way {
	way := func(name string, send func(ctx context.Context, tx *sql.Tx, text string) error) storetest.Way {
		w := storetest.Way{Name: name, Exec: func(ctx context.Context, text string) error {
			return inTx(ctx, func(tx *sql.Tx) error { return send(ctx, tx, text) })
		}}
		if e.callers {
			w.Unpreventable = "what a *sql.Tx of the caller's sends is not seen"
		}
		return w
	}
	ways := []storetest.Way{
		way("Exec", func(ctx context.Context, tx *sql.Tx, text string) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		}),
		way("Query", func(ctx context.Context, tx *sql.Tx, text string) error {
			return readAll(tx.QueryContext(ctx, text))
		}),
		way("QueryRow", func(ctx context.Context, tx *sql.Tx, text string) error {
			var discarded any
			err := tx.QueryRowContext(ctx, text).Scan(&discarded)
			if errors.Is(err, sql.ErrNoRows) || err != nil && err.Error() == "sql: expected 0 destination arguments in Scan, not 1" {
				return nil
			}
			return err
		}),
	}
	if e.pooled != nil {
		return ways // statements that are prepared belong to a session
	}
	return append(ways,
		way("Prepare", func(ctx context.Context, tx *sql.Tx, text string) error {
			stmt, err := tx.PrepareContext(ctx, text)
			if err != nil {
				return err
			}
			defer stmt.Close()
			_, err = stmt.ExecContext(ctx)
			return err
		}),
		way("Prepare and query", func(ctx context.Context, tx *sql.Tx, text string) error {
			stmt, err := tx.PrepareContext(ctx, text) //nolint:sqlclosecheck // the transaction closes it
			if err != nil {
				return err
			}
			return readAll(stmt.QueryContext(ctx))
		}))
}

func readAll(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

func (e entry) lacks() map[storetest.Act]string {
	return map[storetest.Act]string{
		storetest.ActBatchCommit:     "database/sql has no batches",
		storetest.ActNested:          "database/sql has no nested transactions",
		storetest.ActCloseConnection: "a *sql.Tx does not hand out its connection",
	}
}

func (e entry) unpreventable() map[storetest.Act]string {
	if !e.callers {
		return nil
	}
	return map[storetest.Act]string{storetest.ActCommit: "the driver of the caller's *sql.DB commits when it is told to"}
}

// acts are what handlers do with database/sql, beside what they do by SQL alone.
func (e entry) acts() map[storetest.Act]storetest.Conduct {
	conducts := pgtest.Acts(func(ctx context.Context) (found pgtest.Tx, err error) {
		err = inTx(ctx, func(tx *sql.Tx) error {
			found = plain{tx}
			return nil
		})
		return found, err
	})
	for name, act := range map[storetest.Act]func(context.Context, *sql.Tx) error{
		storetest.ActCommit:      func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		storetest.ActRollback:    func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		storetest.ActOpenRows:    openRows,
		storetest.ActCancelRead:  cancelled(pgtest.EndlessRead),
		storetest.ActCancelWrite: cancelled(pgtest.EndlessWrite),
	} {
		conducts[name] = func(ctx context.Context, _ *storetest.Database) error {
			return inTx(ctx, func(tx *sql.Tx) error { return act(ctx, tx) })
		}
	}
	return conducts
}

// plain sends SQL by the plainest calls of a *sql.Tx.
type plain struct{ tx *sql.Tx }

func (p plain) Exec(ctx context.Context, text string) error {
	_, err := p.tx.ExecContext(ctx, text)
	return err
}

func (p plain) Scan(ctx context.Context, dest any, text string) error {
	return p.tx.QueryRowContext(ctx, text).Scan(dest)
}

// openRows leaves more on the way, 45 MB, than sockets hold.
func openRows(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, "SELECT repeat('row', 100) FROM generate_series(1, 150000)") //nolint:sqlclosecheck,rowserrcheck // that is the point
	if err != nil || !rows.Next() {
		return pgtest.NotPerformed("%w", err)
	}
	return nil
}

func cancelled(text string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := tx.ExecContext(ctx, text)
		if err == nil || ctx.Err() == nil {
			return pgtest.NotPerformed("the statement ended with %w", err)
		}
		return err
	}
}
