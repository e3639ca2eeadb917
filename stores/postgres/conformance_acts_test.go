package postgres_test

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/stores/storetest"
)

// ways are the calls of a pgx.Tx that take SQL text, and those around it.
func ways() []storetest.Way {
	way := func(name string, send func(ctx context.Context, tx pgx.Tx, text string) error) storetest.Way {
		return storetest.Way{Name: name, Exec: func(ctx context.Context, text string) error {
			return inTx(ctx, func(tx pgx.Tx) error { return send(ctx, tx, text) })
		}}
	}
	around := func(reason string, w storetest.Way) storetest.Way {
		w.Unpreventable = reason
		return w
	}
	exec := func(options ...any) func(context.Context, pgx.Tx, string) error {
		return func(ctx context.Context, tx pgx.Tx, text string) error {
			_, err := tx.Exec(ctx, text, options...)
			return err
		}
	}
	return []storetest.Way{
		way("Exec", exec()), // without arguments: the simple protocol, which takes several statements
		way("Exec extended", exec(pgx.QueryExecModeExec)),
		way("Exec described", exec(pgx.QueryExecModeDescribeExec)),
		way("Exec simple", exec(pgx.QueryExecModeSimpleProtocol)),
		way("Query", func(ctx context.Context, tx pgx.Tx, text string) error {
			return readAll(tx.Query(ctx, text))
		}),
		way("Query simple", func(ctx context.Context, tx pgx.Tx, text string) error {
			return readAll(tx.Query(ctx, text, pgx.QueryExecModeSimpleProtocol))
		}),
		way("QueryRow", func(ctx context.Context, tx pgx.Tx, text string) error {
			err := tx.QueryRow(ctx, text).Scan()
			if errors.Is(err, pgx.ErrNoRows) || err != nil && err.Error() == "number of field descriptions must equal number of destinations, got 1 and 0" {
				return nil
			}
			return err
		}),
		way("batch", func(ctx context.Context, tx pgx.Tx, text string) error {
			var batch pgx.Batch
			batch.Queue(text)
			return tx.SendBatch(ctx, &batch).Close()
		}),
		way("batch that begins", func(ctx context.Context, tx pgx.Tx, text string) error {
			var batch pgx.Batch
			batch.BeginTx(pgx.TxOptions{BeginQuery: text})
			return tx.SendBatch(ctx, &batch).Close()
		}),
		way("Prepare", func(ctx context.Context, tx pgx.Tx, text string) error {
			name := "storetest_" + text
			if _, err := tx.Prepare(ctx, name, text); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, name)
			return err
		}),
		way("nested transaction", func(ctx context.Context, tx pgx.Tx, text string) error {
			return pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error { return exec()(ctx, nested, text) })
		}),
		around("Conn is part of pgx.Tx, and the connection knows no owner", way("Conn", func(ctx context.Context, tx pgx.Tx, text string) error {
			_, err := tx.Conn().Exec(ctx, text)
			return err
		})),
		around("the connection below belongs to the driver", way("PgConn", func(ctx context.Context, tx pgx.Tx, text string) error {
			return tx.Conn().PgConn().Exec(ctx, text).Close()
		})),
		around("rows have the connection, too", way("Conn of rows", func(ctx context.Context, tx pgx.Tx, text string) error {
			rows, err := tx.Query(ctx, "SELECT 1")
			if err != nil {
				return err
			}
			rows.Close()
			_, err = rows.Conn().Exec(ctx, text)
			return err
		})),
		around("and so have those of a batch", way("Conn of a batch", func(ctx context.Context, tx pgx.Tx, text string) error {
			var batch pgx.Batch
			batch.Queue("SELECT 1")
			results := tx.SendBatch(ctx, &batch)
			rows, err := results.Query()
			if err != nil {
				return errors.Join(err, results.Close())
			}
			rows.Close()
			conn := rows.Conn()
			if err := results.Close(); err != nil {
				return err
			}
			_, err = conn.Exec(ctx, text)
			return err
		})),
		around("a scanner of rows has them, too", way("Conn in a RowScanner", func(ctx context.Context, tx pgx.Tx, text string) error {
			var conn connection
			if err := tx.QueryRow(ctx, "SELECT 1").Scan(&conn); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, text)
			return err
		})),
		around("and so have callbacks of a batch", way("Conn in a batch's callback", func(ctx context.Context, tx pgx.Tx, text string) error {
			var conn *pgx.Conn
			var batch pgx.Batch
			batch.Queue("SELECT 1").Query(func(rows pgx.Rows) error {
				conn = rows.Conn()
				return nil
			})
			if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, text)
			return err
		})),
		around("a rewriter decides itself what is sent", way("QueryRewriter", func(ctx context.Context, tx pgx.Tx, text string) error {
			_, err := tx.Exec(ctx, "SELECT 1", rewriter(text))
			return err
		})),
		around("a statement that was prepared on the connection is sent by its name", way("name of a statement", func(ctx context.Context, tx pgx.Tx, text string) error {
			name := "named " + text
			if _, err := tx.Conn().Prepare(ctx, name, text); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, name)
			return err
		})),
	}
}

// connection scans the connection of a row.
type connection struct{ *pgx.Conn }

func (c *connection) ScanRow(rows pgx.Rows) error {
	c.Conn = rows.Conn()
	rows.Close()
	return nil
}

type rewriter string

func (r rewriter) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return string(r), nil, nil
}

func readAll(rows pgx.Rows, err error) error {
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return rows.Err()
}

// acts are what handlers do with pgx, beside what they do by SQL alone.
func acts() map[storetest.Act]storetest.Conduct {
	conducts := pgtest.Acts(func(ctx context.Context) (found pgtest.Tx, err error) {
		err = inTx(ctx, func(tx pgx.Tx) error {
			found = plain{tx}
			return nil
		})
		return found, err
	})
	for name, act := range map[storetest.Act]func(context.Context, pgx.Tx) error{
		storetest.ActCommit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		storetest.ActRollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		storetest.ActBatchCommit: func(ctx context.Context, tx pgx.Tx) error {
			var both, commit pgx.Batch
			both.Queue("INSERT INTO " + storetest.TakenTable + " (id) VALUES ('taken')")
			both.Queue("COMMIT")
			commit.Queue("commit")
			return errors.Join(tx.SendBatch(ctx, &both).Close(), tx.SendBatch(ctx, &commit).Close())
		},
		storetest.ActNested:          nested,
		storetest.ActOpenRows:        openRows,
		storetest.ActCancelRead:      cancelled(pgtest.EndlessRead),
		storetest.ActCancelWrite:     cancelled(pgtest.EndlessWrite),
		storetest.ActCloseConnection: func(ctx context.Context, tx pgx.Tx) error { return tx.Conn().Close(ctx) },
	} {
		conducts[name] = func(ctx context.Context, _ *storetest.Database) error {
			return inTx(ctx, func(tx pgx.Tx) error { return act(ctx, tx) })
		}
	}
	return conducts
}

// plain sends SQL by the plainest calls of a pgx.Tx.
type plain struct{ tx pgx.Tx }

func (p plain) Exec(ctx context.Context, text string) error {
	_, err := p.tx.Exec(ctx, text)
	return err
}

func (p plain) Scan(ctx context.Context, dest any, text string) error {
	return p.tx.QueryRow(ctx, text).Scan(dest)
}

func nested(ctx context.Context, tx pgx.Tx) error {
	err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
		_, err := nested.Exec(ctx, "INSERT INTO storetest_many VALUES (1)")
		return err
	})
	if err != nil {
		return pgtest.NotPerformed("%w", err)
	}
	err = pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
		_, err := nested.Exec(ctx, "INSERT INTO "+storetest.TakenTable+" (id) VALUES ('taken')")
		return err
	})
	return pgtest.WantCode(err, "23505")
}

// openRows leaves more on the way, 45 MB, than sockets hold.
func openRows(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, "SELECT repeat('row', 100) FROM generate_series(1, 150000)")
	if err != nil || !rows.Next() {
		return pgtest.NotPerformed("%w", err)
	}
	return nil
}

func cancelled(text string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := tx.Exec(ctx, text)
		if !errors.Is(err, context.DeadlineExceeded) {
			return pgtest.NotPerformed("the statement ended with %w", err)
		}
		return err
	}
}
