package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

func beginBatch(t *testing.T, s stores.Batcher, ids ...string) (stores.Batch, []stores.Member) {
	t.Helper()
	claims := make([]stores.Claim, len(ids))
	for i, id := range ids {
		claims[i] = claimOf(id)
	}
	b, err := s.BeginBatch(t.Context(), claims)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Rollback(context.WithoutCancel(t.Context())) })
	return b, b.Members()
}

func memberTx(t *testing.T, m stores.Member) *sql.Tx {
	t.Helper()
	tx, ok := mysql.TxFromContext(m.Context(t.Context()))
	require.True(t, ok)
	return tx
}

// writes lets a member have its effect.
func writes(t *testing.T, m stores.Member, label string) {
	t.Helper()
	_, err := memberTx(t, m).ExecContext(t.Context(), "INSERT INTO effect VALUES (?)", label)
	require.NoError(t, err)
}

// requireLeft checks what is committed.
func (c counted) requireLeft(t *testing.T, effects, completed int) {
	t.Helper()
	var e, done, others int
	err := c.admin.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM effect), (SELECT count(*) FROM millpond_inbox WHERE status = 2), (SELECT count(*) FROM millpond_inbox WHERE status <> 2)").Scan(&e, &done, &others)
	require.NoError(t, err)
	require.Equal(t, []int{effects, completed, 0}, []int{e, done, others}, "effects, completed, others")
}

// A key that another delivery has is not won, at once, and takes nothing from the others.
func TestClaimsOfABatchWaitForNobody(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		held := begin(t, c.again(t, true), claimOf("held"))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the servers would wait for 50
		defer cancel()
		claims := []stores.Claim{claimOf("free"), claimOf("held"), claimOf("twin"), claimOf("twin")}
		b, err := c.BeginBatch(ctx, claims)
		require.NoError(t, err)
		won := make([]bool, len(claims))
		for i, m := range b.Members() {
			if won[i] = m != nil; won[i] {
				writes(t, m, "shared")
				require.NoError(t, m.Keep(t.Context()))
			}
		}
		require.Equal(t, []bool{true, false, true, false}, won)
		require.NoError(t, b.Commit(t.Context()))
		require.NoError(t, held.Commit(t.Context()))
		c.requireLeft(t, 2, 3)
	})
}

func TestWhatABatchCosts(t *testing.T) {
	t.Parallel()
	const k = 10
	errFailed := errors.New("failed")
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		undo, unwon := 2, 0 // round trips
		if p.maria() {
			undo, unwon = 1, 1
		}
		require.NoError(t, begin(t, c, claimOf("seen")).Commit(t.Context()))
		write := func(tx *sql.Tx) error { _, err := tx.ExecContext(t.Context(), effect); return err }
		for name, test := range map[string]struct {
			trips  int
			twin   bool
			handle func(tx *sql.Tx, i int) error
		}{
			"one statement":    {2 + 2*k, false, func(tx *sql.Tx, _ int) error { return write(tx) }},
			"none":             {2, false, func(*sql.Tx, int) error { return nil }},
			"two statements":   {2 + 3*k, false, func(tx *sql.Tx, _ int) error { return errors.Join(write(tx), write(tx)) }},
			"one is completed": {2 + unwon + 2*k, true, func(tx *sql.Tx, _ int) error { return write(tx) }},
			"one statement, 2 fail": {2 + 2*k + 2*undo, false, func(tx *sql.Tx, i int) error {
				return errors.Join(write(tx), map[int]error{3: errFailed, 8: errFailed}[i])
			}},
			"2 fail before": {4, false, func(_ *sql.Tx, i int) error { return map[int]error{3: errFailed, 8: errFailed}[i] }},
			"one hides what it has undone": {2 + 2*k + 2, false, func(tx *sql.Tx, i int) error {
				if i == 4 {
					_, _ = tx.ExecContext(t.Context(), "INSERT INTO nowhere VALUES (1)")
				}
				return write(tx)
			}},
		} {
			cost := c.cost(func() {
				var keys []string
				for range k {
					keys = append(keys, uuid.NewString())
				}
				if test.twin {
					keys = append(keys, "seen")
				}
				b, members := beginBatch(t, c, keys...)
				for i, m := range members[:k] {
					if test.handle(memberTx(t, m), i) != nil {
						require.NoError(t, m.Leave(t.Context()))
					} else {
						require.NoError(t, m.Keep(t.Context()))
					}
				}
				require.Equal(t, test.twin, len(members) > k && members[k] == nil)
				require.NoError(t, b.Commit(t.Context()))
			})
			if cost.RoundTrips != test.trips || cost.Commits != 1 || cost.Rollbacks != 0 {
				t.Errorf("%s: %+v, want %d trips", name, cost, test.trips)
			}
		}
	})
}

// Each member has a *sql.Tx of its own, which ends with its run.
func TestAMemberEndsNothingButItsOwnRun(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		b, members := beginBatch(t, c, "kept", "ends", "after", "unrun")
		left, err := memberTx(t, members[0]).PrepareContext(t.Context(), "INSERT INTO effect VALUES (?)") //nolint:sqlclosecheck // left behind on purpose
		require.NoError(t, err)
		_, err = left.ExecContext(t.Context(), "kept")
		require.NoError(t, err)
		require.NoError(t, members[0].Keep(t.Context()))
		_, err = left.ExecContext(t.Context(), "late")
		require.Error(t, err)
		_, err = memberTx(t, members[0]).ExecContext(t.Context(), effect)
		require.ErrorIs(t, err, sql.ErrTxDone)
		require.ErrorIs(t, members[0].Keep(t.Context()), stores.ErrTxClosed)
		require.ErrorIs(t, members[0].Leave(t.Context()), stores.ErrTxClosed)

		writes(t, members[1], "lost")
		require.ErrorIs(t, memberTx(t, members[1]).Commit(), stores.ErrTxManaged)
		_, err = memberTx(t, members[1]).ExecContext(t.Context(), effect)
		require.ErrorIs(t, err, sql.ErrTxDone)
		err = members[1].Keep(t.Context())
		require.ErrorIs(t, err, stores.ErrTxManaged)
		require.NotErrorIs(t, err, stores.ErrBatchLost)

		writes(t, members[2], "after")
		require.NoError(t, members[2].Keep(t.Context()))
		require.NoError(t, b.Commit(t.Context()))
		c.requireLeft(t, 2, 2)
	})
}

// What would reach other messages is not sent, in whatever way, and nobody else notices.
func TestWhatCannotBeSharedIsNotSent(t *testing.T) {
	t.Parallel()
	ways := map[string]func(ctx context.Context, tx *sql.Tx, text string) error{
		"exec": func(ctx context.Context, tx *sql.Tx, text string) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		},
		"query": func(ctx context.Context, tx *sql.Tx, text string) error { return readAll(tx.QueryContext(ctx, text)) },
		"prepare": func(ctx context.Context, tx *sql.Tx, text string) error {
			_, err := tx.PrepareContext(ctx, text) //nolint:sqlclosecheck // it fails
			return err
		},
	}
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for _, text := range []string{
			"CREATE TABLE ddl (n INT)", "CREATE TEMPORARY TABLE temporary (n INT)", "TRUNCATE effect", "ALTER TABLE effect ADD n INT",
			"COMMIT", "ROLLBACK", "SAVEPOINT a", "ROLLBACK TO SAVEPOINT millpond_member", "RELEASE SAVEPOINT millpond_member", "BEGIN", "START TRANSACTION", "XA START 'a'",
			"SET @a = 1", "SET SESSION sql_mode = ''", "SET autocommit = 1", "SELECT @a := 1", "SELECT GET_LOCK('a', 0)", "DO GET_LOCK('a', 0)",
			"CALL procedure_that_commits()", "PREPARE s FROM 'COMMIT'", "EXECUTE s", "LOCK TABLES effect WRITE", "UNLOCK TABLES", "HANDLER effect OPEN",
			"LOAD DATA INFILE 'a' INTO TABLE effect", "USE information_schema", "FLUSH TABLES", "KILL 1", "/*!50000 COMMIT */", "SELECT 1 /*M!100000 , @a := 1 */", "BEGIN NOT ATOMIC COMMIT; END", "",
		} {
			b, members := beginBatch(t, c, "before "+text, "sends "+text, "after "+text)
			require.NoError(t, members[0].Keep(t.Context()))
			before := c.proxy.Stats().RoundTrips
			for name, way := range ways {
				require.ErrorIs(t, way(t.Context(), memberTx(t, members[1]), text), stores.ErrNotShared, "%s: %s", name, text)
			}
			require.Equal(t, before, c.proxy.Stats().RoundTrips, text)
			err := members[1].Keep(t.Context())
			require.ErrorIs(t, err, stores.ErrNotShared, "although it is hidden")
			require.NotErrorIs(t, err, stores.ErrBatchLost)
			require.NoError(t, members[2].Keep(t.Context()))
			require.NoError(t, b.Commit(t.Context()))
		}
		c.requireLeft(t, 0, 2*32)
	})
}

func TestWhatCanBeShared(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"INSERT INTO t VALUES (?)":                        "",
		" -- why\n/* ; */ select ';'; ":                   "",
		"REPLACE INTO `a;b` VALUES ('it''s @;')":          "",
		"WITH a AS (SELECT 1) SELECT * FROM a":            "",
		"(SELECT 1) UNION (SELECT 2)":                     "",
		"UPDATE t SET a = @@sql_mode":                     "",
		"table t":                                         "",
		"savepoint a":                                     "SAVEPOINT",
		"/* a */ ROLLBACK TO a":                           "ROLLBACK",
		"create temporary table a (b int)":                "CREATE",
		"SELECT n INTO @n FROM t":                         "a variable or lock of the session",
		"INSERT INTO t SELECT get_lock('a', 1)":           "a variable or lock of the session",
		"SELECT 1 /*! , 2 */":                             "a comment that the server executes",
		"EXPLAIN SELECT 1":                                "EXPLAIN",
		"DO 1":                                            "DO",
		"SET STATEMENT max_statement_time = 1 FOR SELECT": "SET",
		"": "an empty statement",
	} {
		require.Equal(t, want, mysql.Unshared(text), "%q", text)
	}
}

// A handler that hides that the server has rolled back everything loses the batch for all, and
// nobody else is blamed; nothing is committed, and each may run again.
func TestAHiddenAbortLosesTheBatch(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for name, abort := range map[string]func(t *testing.T, c counted, m stores.Member) error{
			"deadlock": func(t *testing.T, c counted, m stores.Member) error {
				t.Helper()
				return deadlock(t.Context(), memberTx(t, m), c.admin)
			},
			"connection killed": func(t *testing.T, c counted, m stores.Member) error {
				t.Helper()
				id, err := connectionID(t.Context(), memberTx(t, m))
				require.NoError(t, err)
				_, err = c.admin.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id))
				require.NoError(t, err)
				return exec(t.Context(), asAttempt{m}, effect)
			},
		} {
			for _, fails := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, fails %t", name, fails), func(t *testing.T) {
					t.Parallel()
					c := newCounted(t, p, true)
					c.withPair(t)
					b, members := beginBatch(t, c, "before", "aborts", "after")
					writes(t, members[0], "before")
					require.NoError(t, members[0].Keep(t.Context()))
					writes(t, members[1], "aborts")
					require.Error(t, abort(t, c, members[1]))
					_, _ = memberTx(t, members[1]).ExecContext(t.Context(), effect) // in a transaction that is not the batch's
					if fails {
						require.ErrorIs(t, members[1].Leave(t.Context()), stores.ErrBatchLost)
					} else {
						err := members[1].Keep(t.Context())
						require.ErrorIs(t, err, stores.ErrBatchLost)
						require.ErrorIs(t, err, stores.ErrNotCommitted)
					}
					require.Error(t, members[1].(stores.Interruptible).Interrupted())
					require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
					c.requireLeft(t, 0, 0)
					require.NoError(t, beginOnceFree(t, c, claimOf("before")).Commit(t.Context()))
				})
			}
		}
	})
}

// Whatever a member does not know of, the completion does: a transaction that is not that of the
// claims commits nothing.
func TestACompletionProvesTheClaims(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		b, members := beginBatch(t, c, "first", "second")
		writes(t, members[0], "first")
		require.NoError(t, members[0].Keep(t.Context()))
		require.NoError(t, mysql.SendOn(t.Context(), b, "ROLLBACK"))
		writes(t, members[1], "second")
		require.NoError(t, members[1].Keep(t.Context()))
		require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
		c.requireLeft(t, 0, 0)

		b, members = beginBatch(t, c, "first", "unrun")
		writes(t, members[0], "first")
		require.NoError(t, members[0].Keep(t.Context()))
		require.NoError(t, mysql.SendOn(t.Context(), b, "COMMIT")) // nothing that is admitted does that
		require.NoError(t, b.Commit(t.Context()))
		c.requireLeft(t, 1, 1)
	})
}

// A lock wait timeout may roll back the whole transaction.
func TestALockWaitTimeoutThatRollsBackEverything(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		server := p.private(t, testenv.WithMySQLSettings(map[string]string{"innodb_rollback_on_timeout": "ON", "innodb_lock_wait_timeout": "1"}))
		c := newCountedAt(t, server.NewDatabase(t), true)
		c.withPair(t)
		other, err := c.admin.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = other.Rollback() }()
		_, err = other.ExecContext(t.Context(), "UPDATE storetest_pair SET n = 1 WHERE id = 1")
		require.NoError(t, err)
		held := begin(t, c.again(t, true), claimOf("held"))
		b, members := beginBatch(t, c, "before", "held", "waits")
		writes(t, members[0], "before")
		require.NoError(t, members[0].Keep(t.Context()))
		require.Nil(t, members[1])
		writes(t, members[2], "waits")
		_, err = memberTx(t, members[2]).ExecContext(t.Context(), "UPDATE storetest_pair SET n = 2 WHERE id = 1")
		require.Error(t, err)
		require.ErrorIs(t, members[2].Keep(t.Context()), stores.ErrBatchLost)
		require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
		require.NoError(t, held.Rollback(t.Context()))
		c.requireLeft(t, 0, 0)
	})
}

// A goroutine that still runs a statement, or rows that are open, lose the batch and nothing else.
func TestAMemberThatKeepsTheConnectionLosesTheBatch(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for _, fails := range []bool{false, true} {
			c := newCounted(t, p, true)
			b, members := beginBatch(t, c, "kept", "leaves", "unrun")
			require.NoError(t, members[0].Keep(t.Context()))
			tx := memberTx(t, members[1])
			rows, err := tx.QueryContext(t.Context(), numbers(50_000)+" SELECT n FROM numbers")
			require.NoError(t, err)
			require.True(t, rows.Next())
			if fails {
				require.ErrorIs(t, members[1].Leave(t.Context()), stores.ErrBatchLost)
			} else {
				require.ErrorIs(t, members[1].Keep(t.Context()), stores.ErrTxBusy)
			}
			require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
			require.Eventually(t, func() bool { return rows.Close() == nil || rows.Err() != nil }, 10*time.Second, time.Millisecond)
			require.NoError(t, eventually(t, c, claimOf("kept")).Commit(t.Context()))
			c.requireLeft(t, 0, 1)
		}
	})
}

// eventually wins a claim as soon as the server has noticed that another connection is closed.
func eventually(t *testing.T, s stores.Inbox, claim stores.Claim) (a stores.Attempt) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		a, _, err = s.Begin(t.Context(), claim)
		require.NoError(t, err)
		return a != nil
	}, 30*time.Second, 5*time.Millisecond)
	return a
}

func TestAHungMemberIsCut(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for _, inStatement := range []bool{true, false} {
			c := newCounted(t, p, true)
			b, members := beginBatch(t, c, "kept", "hangs", "unrun")
			writes(t, members[0], "lost")
			require.NoError(t, members[0].Keep(t.Context()))
			tx := memberTx(t, members[1])
			id, err := connectionID(t.Context(), tx)
			require.NoError(t, err)
			over := make(chan error, 1)
			if inStatement {
				go func() { over <- readAll(tx.QueryContext(context.WithoutCancel(t.Context()), "SELECT SLEEP(100)")) }()
				c.waitUntilSleeps(t, id)
			} else {
				over <- sql.ErrTxDone
			}
			b.Cut()
			require.Error(t, <-over)
			require.NoError(t, eventually(t, c, claimOf("kept")).Commit(t.Context()))
			_, err = tx.ExecContext(t.Context(), effect)
			require.ErrorIs(t, err, sql.ErrTxDone)
			require.ErrorIs(t, members[1].Keep(t.Context()), stores.ErrBatchLost)
			require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
			c.requireLeft(t, 0, 1)
		}
	})
}

func (c counted) waitUntilSleeps(t *testing.T, connection int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		err := c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.processlist WHERE id = ? AND info LIKE 'SELECT SLEEP%'", connection).Scan(&n)
		return err == nil && n == 1
	}, 30*time.Second, 5*time.Millisecond)
}

// Goroutines that handlers left behind close what they prepared while other members have the
// connection, and while it is given back.
func TestLateClosesDoNotDisturbTheNextMembers(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for _, early := range []bool{true, false} {
			b, members := beginBatch(t, c, fmt.Sprint("leaves", early), fmt.Sprint("leaves, too", early), fmt.Sprint("last", early))
			var late sync.WaitGroup
			begin := make(chan struct{})
			for i, m := range members {
				tx := memberTx(t, m)
				for range 50 {
					prepared, err := tx.PrepareContext(t.Context(), "SELECT 1")
					require.NoError(t, err)
					late.Go(func() {
						<-begin
						_ = prepared.Close()
					})
				}
				require.NoError(t, m.Keep(t.Context()))
				if i == 0 && early {
					close(begin)
				}
			}
			if !early {
				close(begin)
			}
			require.NoError(t, b.Commit(t.Context()))
			late.Wait()
		}
	})
}

// A goroutine that ends its handler's *sql.Tx closes what that has prepared, while other members have
// the connection.
func TestLateEndsDoNotDisturbTheNextMembers(t *testing.T) {
	t.Parallel()
	const n = 40
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		ids := make([]string, 2*n)
		for i := range ids {
			ids[i] = fmt.Sprint(i)
		}
		b, members := beginBatch(t, c, ids...)
		var late sync.WaitGroup
		for i, m := range members {
			if i%2 == 1 {
				writes(t, m, ids[i])
				require.NoError(t, m.Keep(t.Context()))
				continue
			}
			tx := memberTx(t, m)
			for range 20 {
				_, err := tx.PrepareContext(t.Context(), "SELECT 1") //nolint:sqlclosecheck // its transaction closes it
				require.NoError(t, err)
			}
			begun := make(chan struct{})
			late.Go(func() { close(begun); _ = tx.Rollback() })
			<-begun
			require.NotErrorIs(t, m.Keep(t.Context()), stores.ErrBatchLost)
		}
		require.NoError(t, b.Commit(t.Context()))
		late.Wait()
		var effects int
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM effect").Scan(&effects))
		require.Equal(t, n, effects)
	})
}

// When the reply of COMMIT is lost, each member can be looked up.
func TestTheCommitOfABatchIsUnknown(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for name, committed := range map[string]bool{"reply lost": true, "request lost": false} {
			c := newCounted(t, p, true)
			b, members := beginBatch(t, c, "first", "second", "unrun")
			for i, label := range []string{"first", "second"} {
				writes(t, members[i], label)
				require.NoError(t, members[i].Keep(t.Context()))
			}
			if committed {
				c.proxy.LoseCommitReply(1)
			} else {
				c.proxy.LoseCommitRequest(1)
			}
			require.ErrorIs(t, b.Commit(t.Context()), stores.ErrCommitUnknown, name)
			require.ErrorIs(t, b.Commit(t.Context()), stores.ErrCommitUnknown, name)
			for id, want := range map[string]bool{"first": committed, "second": committed, "unrun": false} {
				done, err := c.Resolve(t.Context(), claimOf(id).Key)
				require.NoError(t, err)
				require.Equal(t, want, done, "%s: %s", name, id)
			}
			if committed {
				c.requireLeft(t, 2, 2)
			} else {
				c.requireLeft(t, 0, 0)
			}
		}
	})
}

// Where there cannot be batches, each message runs alone.
func TestWhoHasNoBatches(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		require.Zero(t, newCounted(t, p, false).BatchLimit(1), "the program's own connections")
		c := newCounted(t, p, true)
		require.Greater(t, c.BatchLimit(4), 31)
		strict, err := c.with(t, true, "", mysql.Config{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		require.Zero(t, strict.BatchLimit(1), "REPEATABLE READ")
	})
}

// Where nobody has migrated since there are procedures for batches, and where one is gone, there
// are no batches; Migrate makes them.
func TestBatchesNeedTheirProcedures(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"batch_claim", "batch_complete"} {
		c := newCounted(t, onMySQL, true)
		drop := func() {
			_, err := c.admin.ExecContext(t.Context(), "DROP PROCEDURE millpond_"+name)
			require.NoError(t, err)
		}
		if name == "batch_claim" {
			drop()
			_, err := c.BeginBatch(t.Context(), []stores.Claim{claimOf("a"), claimOf("b")})
			require.ErrorIs(t, err, stores.ErrUnavailable)
		} else {
			b, members := beginBatch(t, c, "kept", "unrun")
			writes(t, members[0], "lost")
			require.NoError(t, members[0].Keep(t.Context()))
			drop()
			require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
		}
		c.requireLeft(t, 0, 0)
		require.Zero(t, c.BatchLimit(1))
		before := c.proxy.Stats().RoundTrips
		_, err := c.BeginBatch(t.Context(), []stores.Claim{claimOf("a"), claimOf("b")})
		require.ErrorIs(t, err, stores.ErrNotShared)
		require.Equal(t, before, c.proxy.Stats().RoundTrips)
		c.withInbox(t) // in as many trips as before
		other := c.again(t, true)
		require.Zero(t, other.BatchLimit(1))
		_, err = other.Migrate(t.Context())
		require.NoError(t, err)
		again := c.again(t, true)
		require.Positive(t, again.BatchLimit(1))
		b, members := beginBatch(t, again, "kept", "unrun")
		require.NoError(t, members[0].Keep(t.Context()))
		require.NoError(t, b.Commit(t.Context()))
		c.requireLeft(t, 1, 2)
	}
}

// What a purge may have removed is not claimed in a batch either.
func TestABatchClaimsNothingStale(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		_, err := c.admin.ExecContext(t.Context(), "UPDATE millpond_consumer SET purged_through = ?", time.UnixMicro(1_000_000).UnixMicro())
		require.NoError(t, err)
		claims := []stores.Claim{claimOf("stale"), claimOf("recent"), claimOf("timeless")}
		claims[0].Time, claims[1].Time = time.UnixMicro(999_999), time.UnixMicro(1_000_001)
		b, err := c.BeginBatch(t.Context(), claims)
		require.NoError(t, err)
		members := b.Members()
		require.Nil(t, members[0])
		for _, m := range members[1:] {
			require.NoError(t, m.Keep(t.Context()))
		}
		require.NoError(t, b.Commit(t.Context()))
		_, v, err := c.Begin(t.Context(), claims[0])
		require.NoError(t, err)
		require.Equal(t, stores.Stale, v.Outcome)
		c.requireLeft(t, 0, 2)
	})
}

// How many locks the server keeps in memory for the claims of a batch.
func TestClaimsOfABatchTakeNoRoomInTheServersLocks(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		ids := make([]string, 32)
		for i := range ids {
			ids[i] = uuid.NewString()
		}
		b, members := beginBatch(t, c, ids...)
		id, err := connectionID(t.Context(), memberTx(t, members[0]))
		require.NoError(t, err)
		var structs, bytes, locked int
		eventuallyListed(t, "the transaction of the batch", func() bool {
			err = c.admin.QueryRowContext(t.Context(), "SELECT trx_lock_structs, trx_lock_memory_bytes, trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ?", id).Scan(&structs, &bytes, &locked)
			if !errors.Is(err, sql.ErrNoRows) {
				require.NoError(t, err)
			}
			return err == nil
		})
		t.Logf("%d locks with %d bytes for %d rows", structs, bytes, locked)
		require.Less(t, structs, 4)
		require.NoError(t, b.Rollback(t.Context()))
	})
}

// asAttempt lets a member be used like an attempt.
type asAttempt struct{ stores.Member }

func (asAttempt) Commit(context.Context) error   { return nil }
func (asAttempt) Rollback(context.Context) error { return nil }

// withPair makes the tables of deadlock.
func (c counted) withPair(t *testing.T) {
	t.Helper()
	for _, text := range []string{
		"CREATE TABLE storetest_many (n BIGINT)", "CREATE TABLE storetest_pair (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO storetest_pair VALUES (1, 0), (2, 0)",
	} {
		_, err := c.admin.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
}
