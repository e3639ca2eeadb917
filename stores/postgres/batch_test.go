package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// beginBatch claims keys that no other has.
func beginBatch(t *testing.T, s *postgres.Store, ids ...string) stores.Batch {
	t.Helper()
	claims := make([]stores.Claim, len(ids))
	for i, id := range ids {
		claims[i] = pgtest.Claim(id)
	}
	b, err := s.BeginBatch(t.Context(), claims)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Rollback(context.WithoutCancel(t.Context())) })
	return b
}

func memberTx(t *testing.T, m stores.Member) pgx.Tx {
	t.Helper()
	require.NotNil(t, m)
	tx, ok := postgres.TxFromContext(m.Context(t.Context()))
	require.True(t, ok)
	return tx
}

func outcome(t *testing.T, s *postgres.Store, id string) stores.Outcome {
	t.Helper()
	v, err := s.Look(t.Context(), pgtest.Claim(id).Key, pgtest.Claim(id).Fingerprint)
	require.NoError(t, err)
	return v.Outcome
}

func committedKeys(t *testing.T, s *postgres.Store) (keys []string) {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), "SELECT key FROM effect ORDER BY key")
	require.NoError(t, err)
	keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return keys
}

func TestABatchCommitsItsMembersOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
	b := beginBatch(t, s, "a", "b", "c", "d", "b")
	members := b.Members()
	require.Nil(t, members[4], "a key is won once")
	ctx := t.Context()
	for i, id := range []string{"a", "b", "c"} {
		tx := memberTx(t, members[i])
		_, err := tx.Exec(ctx, insertEffect, id)
		require.NoError(t, err)
		if id == "b" { // whose transaction is aborted, and nobody else's
			_, err := tx.Exec(ctx, "INSERT INTO effect SELECT 1 / 0")
			require.Error(t, err)
			err = members[i].Keep(ctx)
			require.ErrorIs(t, err, stores.ErrTxAborted)
			require.NotErrorIs(t, err, stores.ErrBatchLost)
			continue
		}
		require.NoError(t, members[i].Keep(ctx))
		_, err = tx.Exec(ctx, insertEffect, id)
		require.ErrorIs(t, err, pgx.ErrTxClosed)
	}
	require.NoError(t, b.Commit(ctx))
	require.Equal(t, []string{"a", "c"}, committedKeys(t, s))
	require.Equal(t, stores.Duplicate, outcome(t, s, "a"))
	require.Equal(t, stores.Claimable, outcome(t, s, "b"))
	require.Equal(t, stores.Duplicate, outcome(t, s, "c"))
	require.Equal(t, stores.Claimable, outcome(t, s, "d"), "it has not run")
	require.NoError(t, b.Rollback(ctx))
}

// The driver does not expect rows of COPY among several statements.
func TestAMemberMayBeginWithCopy(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
	b := beginBatch(t, s, "copies", "writes")
	members := b.Members()
	tag, err := memberTx(t, members[0]).Exec(t.Context(), "COPY (SELECT 1) TO STDOUT")
	require.NoError(t, err)
	require.Equal(t, int64(1), tag.RowsAffected())
	require.NoError(t, members[0].Keep(t.Context()))
	_, err = memberTx(t, members[1]).Exec(t.Context(), insertEffect, "writes")
	require.NoError(t, err)
	require.NoError(t, members[1].Keep(t.Context()))
	require.NoError(t, b.Commit(t.Context()))
	require.Equal(t, stores.Duplicate, outcome(t, s, "copies"))
	require.Equal(t, []string{"writes"}, committedKeys(t, s))
}

// Whatever its first statement is, a member that fails takes back all that it has done.
func TestAMemberThatLeavesTakesItsEffectsWithIt(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
	for name, act := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"nothing": func(context.Context, pgx.Tx) error { return nil },
		"exec": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertEffect, "left")
			return err
		},
		"options": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertEffect, pgx.QueryExecModeExec, "left")
			return err
		},
		"query": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, insertEffect+" RETURNING key", "left")
			if err != nil {
				return err
			}
			keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.Equal(t, []string{"left"}, keys)
			return err
		},
		"row": func(ctx context.Context, tx pgx.Tx) error {
			var key string
			return tx.QueryRow(ctx, "INSERT INTO effect (key, label) VALUES (@key, 'done') RETURNING key", pgx.NamedArgs{"key": "left"}).Scan(&key)
		},
		"no row": func(ctx context.Context, tx pgx.Tx) error {
			if err := tx.QueryRow(ctx, "SELECT 1 WHERE false").Scan(new(int)); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			_, err := tx.Exec(ctx, insertEffect, "left")
			return err
		},
		"batch": func(ctx context.Context, tx pgx.Tx) error {
			var batch pgx.Batch
			batch.Queue(insertEffect, "left")
			batch.Queue("SELECT 1").QueryRow(func(row pgx.Row) error { return row.Scan(new(int)) })
			return tx.SendBatch(ctx, &batch).Close()
		},
		"copy": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"key", "label"}, pgx.CopyFromRows([][]any{{"left", "done"}}))
			return err
		},
		"savepoint": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, insertEffect, "left")
				return err
			})
		},
		"failed": func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SELECT 1 / $1::int", 0); err == nil {
				return errors.New("it has not failed")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			before, left, after := name+" before", name+" left", name+" after"
			b := beginBatch(t, s, before, left, after)
			for i, id := range []string{before, left, after} {
				m := b.Members()[i]
				tx := memberTx(t, m)
				if id == left {
					require.NoError(t, act(ctx, tx))
					require.NoError(t, m.Leave(ctx))
					continue
				}
				_, err := tx.Exec(ctx, insertEffect, id)
				require.NoError(t, err)
				require.NoError(t, m.Keep(ctx))
			}
			require.NoError(t, b.Commit(ctx))
			all := committedKeys(t, s)
			require.Contains(t, all, before)
			require.Contains(t, all, after)
			require.NotContains(t, all, "left")
			require.Equal(t, stores.Claimable, outcome(t, s, left))
			require.Equal(t, stores.Duplicate, outcome(t, s, after))
		})
	}
}

// What other messages would notice is refused before it is sent, and the member runs again in
// a transaction of its own.
func TestWhatCannotBeShared(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
	exec := func(sql string, args ...any) func(context.Context, pgx.Tx) {
		return func(ctx context.Context, tx pgx.Tx) {
			_, err := tx.Exec(ctx, sql, args...)
			require.ErrorIs(t, err, stores.ErrNotShared, sql)
		}
	}
	acts := map[string]func(ctx context.Context, tx pgx.Tx){
		"conn": func(ctx context.Context, tx pgx.Tx) {
			conn := tx.Conn()
			require.NotNil(t, conn.TypeMap())
			_, err := conn.Exec(ctx, "COMMIT")
			require.Error(t, err)
			require.Same(t, conn, tx.Conn()) // the pool gives it one connection
		},
		"large objects": func(ctx context.Context, tx pgx.Tx) {
			lo := tx.LargeObjects()
			_, err := lo.Create(ctx, 0)
			require.Error(t, err)
		},
		"conn of rows": func(ctx context.Context, tx pgx.Tx) {
			rows, err := tx.Query(ctx, "SELECT 1")
			require.NoError(t, err)
			_, err = rows.Conn().Exec(ctx, "COMMIT")
			require.Error(t, err)
			rows.Close()
		},
		"prepared by name": func(ctx context.Context, tx pgx.Tx) {
			_, err := tx.Prepare(ctx, "mine", "SELECT 1")
			require.ErrorIs(t, err, stores.ErrNotShared)
		},
		"in a savepoint": func(ctx context.Context, tx pgx.Tx) {
			err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 1")
				return err
			})
			require.ErrorIs(t, err, stores.ErrNotShared)
		},
		"in a batch": func(ctx context.Context, tx pgx.Tx) {
			var batch pgx.Batch
			batch.Queue("SET LOCAL lock_timeout = 1")
			require.ErrorIs(t, tx.SendBatch(ctx, &batch).Close(), stores.ErrNotShared)
		},
		"a rewriter": func(ctx context.Context, tx pgx.Tx) {
			_, err := tx.Exec(ctx, "SELECT 1", commits{})
			require.ErrorIs(t, err, stores.ErrNotShared)
		},
	}
	for _, sql := range []string{
		"COMMIT", "ROLLBACK", "SAVEPOINT a", "RELEASE a", "SET LOCAL lock_timeout = 1", "SET lock_timeout = 1", "RESET ALL",
		"SELECT set_config('a.b', 'c', true)", "CREATE TEMP TABLE a (b text)", "CREATE TABLE a (b text)", "SELECT 1 INTO a",
		"SELECT pg_advisory_xact_lock(1)", "SELECT pg_try_advisory_lock(1)", `SELECT "pg_catalog"."PG_ADVISORY_XACT_LOCK"(1)`, "LOCK TABLE effect",
		"DECLARE a CURSOR FOR SELECT 1", "DO $$ BEGIN END $$", "CALL a()", "SET CONSTRAINTS ALL DEFERRED", "SELECT 1; SELECT 2",
		"NOTIFY a", "LISTEN a", "PREPARE a AS SELECT 1", "name", "EXECUTE a", "DISCARD ALL", "BEGIN", "SET TRANSACTION READ ONLY",
	} {
		acts[sql] = exec(sql)
	}
	for name, act := range acts {
		for _, fails := range []bool{true, false} {
			name := fmt.Sprintf("%s, and fails %t", name, fails)
			t.Run(name, func(t *testing.T) {
				ctx := t.Context()
				b := beginBatch(t, s, name+"1", name+"2")
				one, other := b.Members()[0], b.Members()[1]
				tx := memberTx(t, one)
				_, err := tx.Exec(ctx, insertEffect, "apart")
				require.NoError(t, err)
				act(ctx, tx)
				if fails {
					require.ErrorIs(t, one.Leave(ctx), stores.ErrNotShared)
				} else {
					require.ErrorIs(t, one.Keep(ctx), stores.ErrNotShared)
				}
				_, err = memberTx(t, other).Exec(ctx, insertEffect, name)
				require.NoError(t, err)
				require.NoError(t, other.Keep(ctx))
				require.NoError(t, b.Commit(ctx))
				require.NotContains(t, committedKeys(t, s), "apart")
				require.Equal(t, stores.Claimable, outcome(t, s, name+"1"))
				require.Equal(t, stores.Duplicate, outcome(t, s, name+"2"))
			})
		}
	}
}

type commits struct{}

func (commits) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	_, err := conn.Exec(ctx, "COMMIT")
	return sql, args, err
}

// A lost batch commits nothing, and gives its connection back.
func TestALostBatch(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	ctx := t.Context()
	for name, lose := range map[string]func(m stores.Member, tx pgx.Tx){
		"canceled": func(m stores.Member, tx pgx.Tx) {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(short, "SELECT pg_sleep(10)")
			require.Error(t, err)
			require.ErrorIs(t, m.Leave(ctx), stores.ErrBatchLost)
		},
		"open rows": func(m stores.Member, tx pgx.Tx) {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 10)") //nolint:sqlclosecheck // it is left open
			require.NoError(t, err)
			require.ErrorIs(t, m.Keep(ctx), stores.ErrTxBusy)
		},
		"ended by the server": func(m stores.Member, tx pgx.Tx) {
			_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			require.Error(t, err)
			require.ErrorIs(t, m.Leave(ctx), stores.ErrBatchLost)
			require.Error(t, m.(stores.Interruptible).Interrupted())
		},
		"not prepared": func(m stores.Member, tx pgx.Tx) {
			_, err := tx.Exec(ctx, "SELECT there_is_no_such_column")
			require.Error(t, err)
			require.ErrorIs(t, m.Leave(ctx), stores.ErrBatchLost)
		},
		"cut": func(stores.Member, pgx.Tx) {},
	} {
		t.Run(name, func(t *testing.T) {
			b := beginBatch(t, s, name+"1", name+"2", name+"3")
			members := b.Members()
			_, err := memberTx(t, members[0]).Exec(ctx, insertEffect, name)
			require.NoError(t, err)
			require.NoError(t, members[0].Keep(ctx))
			lose(members[1], memberTx(t, members[1]))
			if name == "cut" {
				b.Cut()
				b.Cut()
			} else {
				require.ErrorIs(t, b.Commit(ctx), stores.ErrBatchLost)
			}
			_ = b.Rollback(ctx)
			require.Eventually(t, func() bool { return pgtest.Verdict(t, s, pgtest.Claim(name+"1")).Outcome == stores.Claimed }, 30*time.Second, 20*time.Millisecond)
			require.NotContains(t, committedKeys(t, s), name)
		})
	}
}

// k messages take two trips beside their handlers' own, and one commit.
func TestWhatABatchCosts(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	const k = 10
	share := func(handle func(tx pgx.Tx, i int) error) func() {
		return func() {
			ctx := t.Context()
			keys := make([]string, k)
			for i := range keys {
				keys[i] = uuid.NewString()
			}
			b := beginBatch(t, s, keys...)
			for i, m := range b.Members() {
				if err := handle(memberTx(t, m), i); err != nil {
					require.NoError(t, m.Leave(ctx))
				} else {
					require.NoError(t, m.Keep(ctx))
				}
			}
			require.NoError(t, b.Commit(ctx))
		}
	}
	errFailed := errors.New("failed")
	for name, test := range map[string]struct {
		trips  int
		handle func(tx pgx.Tx, i int) error
	}{
		"one statement": {2 + k, func(tx pgx.Tx, i int) error {
			_, err := tx.Exec(t.Context(), insertEffect, "one")
			return err
		}},
		"three": {2 + 3*k, func(tx pgx.Tx, i int) error {
			for range 2 {
				if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM effect WHERE key = $1", "none").Scan(new(int)); err != nil {
					return err
				}
			}
			_, err := tx.Exec(t.Context(), insertEffect, "three")
			return err
		}},
		"none": {2, func(pgx.Tx, int) error { return nil }},
		"batch": {2 + k, func(tx pgx.Tx, i int) error {
			var batch pgx.Batch
			batch.Queue(insertEffect, "batch")
			batch.Queue(insertEffect, "batch")
			return tx.SendBatch(t.Context(), &batch).Close()
		}},
		"two fail": {2 + k + 2, func(tx pgx.Tx, i int) error {
			_, err := tx.Exec(t.Context(), insertEffect, "some")
			if i%5 == 3 {
				return errFailed
			}
			return err
		}},
	} {
		cost := pgtest.WarmedUp(t, proxy, share(test.handle))
		if cost.RoundTrips != test.trips || cost.Commits != 1 || cost.Rollbacks > 2 {
			t.Errorf("%s: %+v, want %d trips", name, cost, test.trips)
		}
	}
}
