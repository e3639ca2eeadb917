package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/batchtest"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// queuedMember runs a handler that queues as a member of a batch.
func queuedMember(t *testing.T, m stores.Member, id string, f queuing) error {
	t.Helper()
	return queuedMemberIn(t.Context(), t, m, id, f)
}

func queuedMemberIn(ctx context.Context, t *testing.T, m stores.Member, id string, f queuing) error {
	t.Helper()
	require.NotNil(t, m)
	msg := message.NewMessage(id, nil)
	msg.SetContext(m.Context(ctx))
	if err := postgres.Queued(f)(msg); err != nil {
		return errors.Join(err, m.Leave(t.Context()))
	}
	return m.Keep(t.Context())
}

func dropped(t *testing.T, m stores.Member) error {
	t.Helper()
	d, ok := m.(stores.Droppable)
	require.True(t, ok)
	return d.Dropped()
}

// However many there are: BEGIN and the claims, the statements and COMMIT.
func TestABatchOfQueuedHandlersTakesTwoTrips(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	for _, fails := range []int{0, 1, 3} {
		cost := pgtest.WarmedUp(t, proxy, func() {
			ids := make([]string, 32)
			for i := range ids {
				ids[i] = uuid.NewString()
			}
			b := beginBatch(t, s, ids...)
			for i, m := range b.Members() {
				require.NoError(t, queuedMember(t, m, ids[i], func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
					q.ExecRows(1, insertEffect, msg.UUID)
					if i < fails {
						q.ExecRows(2, "UPDATE effect SET label = 'twice' WHERE key = $1", msg.UUID)
					}
					q.ExecRows(1, "UPDATE effect SET label = $2 WHERE key = $1", msg.UUID, "again")
					return nil
				}))
			}
			require.NoError(t, b.Commit(t.Context()))
			for i, m := range b.Members() {
				require.Equal(t, i < fails, dropped(t, m) != nil)
			}
		})
		if cost.RoundTrips != 2+fails || cost.Commits != 1 {
			t.Errorf("%d fail: %+v, want a trip more for each", fails, cost)
		}
	}
}

// What fails at COMMIT is its member's, and nobody else's.
func TestAQueuedErrorDropsItsMember(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	exec(t, s.Pool(), "CREATE TABLE account (balance int CHECK (balance >= 0))")
	for name, bad := range map[string]func(q *postgres.Queue){
		"a constraint":       func(q *postgres.Queue) { q.Exec("INSERT INTO account VALUES (-1)") },
		"a division by zero": func(q *postgres.Queue) { q.Exec("UPDATE effect SET label = (1 / $1::int)::text", 0) },
		"rows":               func(q *postgres.Queue) { q.ExecRows(2, "UPDATE effect SET label = 'paid' WHERE key LIKE 'bad%'") },
	} {
		exec(t, s.Pool(), "TRUNCATE effect")
		ids := []string{"first " + name, "bad " + name, "idle " + name, "last " + name, "unrun " + name}
		b := beginBatch(t, s, ids...)
		members := b.Members()
		for i, id := range ids[:4] {
			require.NoError(t, queuedMember(t, members[i], id, func(ctx context.Context, q *postgres.Queue, msg *message.Message) error {
				if i == 2 {
					return nil
				}
				if err := queueEffect(ctx, q, msg); i != 1 || err != nil {
					return err
				}
				bad(q)
				return nil
			}), name)
			require.NoError(t, dropped(t, members[i]))
			emitted, ok := members[i].(stores.Emitter)
			require.True(t, ok)
			require.ErrorIs(t, emitted.Emit(nil), stores.ErrTxClosed)
		}
		require.NoError(t, b.Commit(t.Context()), name)
		err := dropped(t, members[1])
		statement, ok := errors.AsType[*postgres.StatementError](err)
		if !ok || statement.Number != 2 || !errors.Is(err, stores.ErrNotCommitted) {
			t.Errorf("%s: %v", name, err)
		}
		if err := members[1].(stores.Interruptible).Interrupted(); err != nil { //nolint:forcetypeassert // a panic is a failure too
			t.Errorf("%s is taken for the database's: %v", name, err)
		}
		require.NoError(t, dropped(t, members[0]))
		require.Equal(t, []string{ids[0], ids[3]}, committedKeys(t, s))
		for i, id := range ids {
			want := stores.Duplicate
			if i == 1 || i == 4 {
				want = stores.Claimable
			}
			require.Equal(t, want, outcome(t, s, id), id)
		}
	}
}

// COPY would take the statements behind it for its rows, and the server would close the connection.
func TestCopyIsNotQueued(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	b := beginBatch(t, s, "good", "reads", "writes")
	require.NoError(t, queuedMember(t, b.Members()[0], "good", queueEffect))
	for i, sql := range []string{"COPY effect FROM STDIN", "copy (SELECT 1) to stdout"} {
		err := queuedMember(t, b.Members()[i+1], "copies", func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
			q.Exec(sql)
			return nil
		})
		require.ErrorContains(t, err, "cannot be queued", sql)
		require.NotErrorIs(t, err, stores.ErrBatchLost, sql)
	}
	require.NoError(t, b.Commit(t.Context()))
	require.Equal(t, []string{"good"}, committedKeys(t, s))
	require.Equal(t, stores.Claimable, outcome(t, s, "reads"))
	require.Equal(t, stores.Claimable, outcome(t, s, "writes"))
}

// What a handler has sent itself and what it hands over are undone together.
func TestAQueueBesideTheTransactionInABatch(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	b := beginBatch(t, s, "good", "bad", "set", "wrong")
	members := b.Members()
	both := func(rows int64) queuing {
		return func(ctx context.Context, q *postgres.Queue, msg *message.Message) error {
			tx, _ := postgres.TxFromContext(ctx)
			if _, err := tx.Exec(ctx, insertEffect, msg.UUID+", sent"); err != nil {
				return err
			}
			q.ExecRows(rows, insertEffect, msg.UUID)
			return nil
		}
	}
	require.NoError(t, queuedMember(t, members[0], "good", both(1)))
	err := queuedMember(t, members[1], "bad", both(2))
	rows, ok := errors.AsType[*postgres.RowsError](err)
	require.True(t, ok && *rows == postgres.RowsError{Want: 2, Got: 1}, "%v", err)
	err = queuedMember(t, members[2], "set", func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
		q.Exec("SET LOCAL work_mem = '1MB'")
		return nil
	})
	require.ErrorIs(t, err, stores.ErrNotShared)
	require.NoError(t, b.Commit(t.Context()))
	require.Equal(t, []string{"good", "good, sent"}, committedKeys(t, s))
	require.Equal(t, stores.Claimable, outcome(t, s, "bad"))
}

// Where nothing is prepared the statements are sent at once, behind the member's savepoint.
func TestQueuedInBatchesWhereNothingIsPrepared(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "cache_describe"} {
		s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "default_query_exec_mode", mode))
		b := beginBatch(t, s, "good", "bad", "more")
		members := b.Members()
		require.NoError(t, queuedMember(t, members[0], "good", queueEffect))
		err := queuedMember(t, members[1], "bad", func(ctx context.Context, q *postgres.Queue, msg *message.Message) error {
			q.ExecRows(2, insertEffect, msg.UUID)
			return nil
		})
		require.Error(t, err)
		require.NotErrorIs(t, err, stores.ErrBatchLost)
		require.NoError(t, queuedMember(t, members[2], "more", queueEffect))
		require.NoError(t, b.Commit(t.Context()))
		require.Equal(t, []string{"good", "more"}, committedKeys(t, s))
	}
}

// What the driver does not send, or not with the member's savepoint, undoes nothing of others.
func TestAQueueThatIsNotSentUndoesNothingOfOthers(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "cache_describe"} {
		s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "default_query_exec_mode", mode))
		for what, bad := range map[string]func(q *postgres.Queue, end func()){
			"text":     func(q *postgres.Queue, _ func()) { q.Exec("INSERT INTO nowhere VALUES (1)") },
			"argument": func(q *postgres.Queue, _ func()) { q.Exec(insertEffect, struct{}{}) },
			"time":     func(q *postgres.Queue, end func()) { q.Exec(insertEffect, "bad"); end() },
		} {
			exec(t, s.Pool(), "TRUNCATE effect")
			good, more := "good "+what, "more "+what
			b := beginBatch(t, s, good, "bad "+what, more)
			members := b.Members()
			require.NoError(t, queuedMember(t, members[0], good, queueEffect))
			ctx, end := context.WithCancel(t.Context())
			err := queuedMemberIn(ctx, t, members[1], "bad", func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
				bad(q, end)
				return nil
			})
			end()
			require.Error(t, err)
			if errors.Is(err, stores.ErrBatchLost) {
				require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
				require.Empty(t, committedKeys(t, s))
				continue
			}
			require.NoError(t, queuedMember(t, members[2], more, queueEffect))
			require.NoError(t, b.Commit(t.Context()))
			require.Equal(t, []string{good, more}, committedKeys(t, s), "%s, %s: %v", mode, what, err)
			require.Equal(t, stores.Claimable, outcome(t, s, "bad "+what))
		}
	}
}

// What a middleware sends when the handler has returned is undone together with its queue.
func TestWhatFollowsAQueueIsNotCommittedWithoutIt(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	b := beginBatch(t, s, "good", "bad")
	require.NoError(t, queuedMember(t, b.Members()[0], "good", queueEffect))
	bad := b.Members()[1]
	msg := message.NewMessage("bad", nil)
	msg.SetContext(bad.Context(t.Context()))
	require.NoError(t, postgres.Queued(func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
		q.ExecRows(2, insertEffect, "bad")
		return nil
	})(msg))
	tx, _ := postgres.TxFromContext(msg.Context())
	_, err := tx.Exec(t.Context(), insertEffect, "bad, audited")
	require.NoError(t, err)
	require.NoError(t, bad.Keep(t.Context()))
	require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
	require.Empty(t, committedKeys(t, s))
}

// A statement that has failed by what another member has written decides nothing if that is not
// committed either.
func TestAMemberDroppedForWhatIsNotCommittedRunsAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	exec(t, s.Pool(), "CREATE SEQUENCE tries")
	exec(t, s.Pool(), "CREATE TABLE account (balance int CHECK (balance >= 0))")
	b := beginBatch(t, s, "first", "second")
	require.NoError(t, queuedMember(t, b.Members()[0], "first", func(ctx context.Context, q *postgres.Queue, msg *message.Message) error {
		q.Exec("INSERT INTO account SELECT CASE WHEN nextval('tries') > 1 THEN -1 ELSE 1 END") // fails when it is sent again
		return queueEffect(ctx, q, msg)
	}))
	require.NoError(t, queuedMember(t, b.Members()[1], "second", func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
		q.ExecRows(1, "INSERT INTO effect SELECT $1::text WHERE NOT EXISTS (SELECT FROM effect)", "second")
		return nil
	}))
	require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
	require.Empty(t, committedKeys(t, s))
}

// A text that the server does not take ends the transaction of all, each of which runs again.
func TestAQueuedTextThatIsWrongLosesTheBatch(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	b := beginBatch(t, s, "good", "wrong")
	require.NoError(t, queuedMember(t, b.Members()[0], "good", queueEffect))
	err := queuedMember(t, b.Members()[1], "wrong", func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
		q.Exec("INSERT INTO nowhere VALUES (1)")
		return nil
	})
	require.ErrorIs(t, err, stores.ErrBatchLost)
	require.ErrorIs(t, b.Commit(t.Context()), stores.ErrNotCommitted)
	require.Empty(t, committedKeys(t, s))
}

// Neither side may wait for the other to read, and what makes room for statements forgets none of
// those that others have handed over.
func TestABatchOfManyQueuedStatements(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	label := strings.Repeat("x", 2000)
	b := beginBatch(t, s, "a", "b", "c", "d")
	for m, member := range b.Members() {
		require.NoError(t, queuedMember(t, member, fmt.Sprint(m), func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
			for i := range 500 {
				q.Exec("INSERT INTO effect VALUES ($1, $2) RETURNING label", fmt.Sprintf("%d %d", m, i), label)
			}
			for i := range 90 {
				q.ExecRows(1, fmt.Sprintf("UPDATE effect SET label = '%d of %d' WHERE key = $1", i, m), fmt.Sprintf("%d %d", m, i))
			}
			return nil
		}))
	}
	require.NoError(t, b.Commit(t.Context()))
	require.Equal(t, 2000, effects(t, s.Pool()))
}

// The inbox records what fails, and completes the others.
func TestQueuedHandlersShareThroughTheInbox(t *testing.T) {
	t.Parallel()
	s := newSharing(t)
	const messages = 100
	wait := batchtest.Crowded(8)
	handle := postgres.Queued(func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
		wait()
		rows := int64(1)
		if msg.UUID == batchtest.ID(70) {
			rows = 2
		}
		q.ExecRows(rows, insertEffect, msg.UUID)
		return nil
	})
	for i, err := range s.Deliver(0, messages, handle) {
		require.NoError(t, err, i)
	}
	s.Once(t, messages, func(i int) bool { return i == 70 })
	require.Equal(t, middleware.ResultParked, s.Result(70))
	_, sum := s.Ended()
	require.NoError(t, sum.Lost)
	t.Logf("%+v", sum)
	require.GreaterOrEqual(t, sum.Kept, messages/2)
}
