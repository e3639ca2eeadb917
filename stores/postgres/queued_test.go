package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

type queuing func(ctx context.Context, q *postgres.Queue, msg *message.Message) error

// queued runs a handler that queues in an attempt of its own, and commits.
func queued(t *testing.T, s *postgres.Store, id string, f queuing, outputs ...stores.Output) (stores.Attempt, error) {
	t.Helper()
	a, _ := begin(t, s, pgtest.Claim(id))
	msg := message.NewMessage(id, nil)
	msg.SetContext(a.Context(t.Context()))
	if err := postgres.Queued(f)(msg); err != nil {
		return a, errors.Join(err, a.Rollback(t.Context()))
	}
	if len(outputs) > 0 {
		if err := a.(stores.Emitter).Emit(outputs); err != nil { //nolint:forcetypeassert // a panic is a failure too
			t.Fatal(err)
		}
	}
	return a, a.Commit(t.Context())
}

func queueEffect(_ context.Context, q *postgres.Queue, msg *message.Message) error {
	q.ExecRows(1, insertEffect, msg.UUID)
	return nil
}

func TestQueuedMessageTakesTwoTrips(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	for name, outputs := range map[string][]stores.Output{
		"alone": nil, "with outputs": {output(""), output("k")},
	} {
		cost := pgtest.WarmedUp(t, proxy, func() {
			_, err := queued(t, s, uuid.NewString(), func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
				q.ExecRows(1, insertEffect, msg.UUID)
				q.Exec("UPDATE effect SET label = $2 WHERE key = $1", msg.UUID, "again")
				q.ExecRows(1, "SELECT FROM effect WHERE key = $1", msg.UUID)
				return nil
			}, outputs...)
			if err != nil {
				t.Fatal(err)
			}
		})
		if cost.RoundTrips != 2 || cost.Commits != 1 || cost.Rollbacks != 0 {
			t.Errorf("%s: %+v, want 2 trips and 1 commit", name, cost)
		}
	}
}

// queuedInbox is an inbox around a handler that queues.
func queuedInbox(t *testing.T, s *postgres.Store, f queuing) (deliver func(id string)) {
	t.Helper()
	in, err := middleware.NewInbox(s, middleware.InboxConfig{
		Service: "billing", Handler: "charge", Logger: slog.New(slog.DiscardHandler), CacheSize: -1, Retry: middleware.RetryPolicy{MaxAttempts: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := postgres.Queued(f)
	run := in.Middleware(func(m *message.Message) ([]*message.Message, error) { return nil, handler(m) })
	return func(id string) {
		if _, err := run(message.NewMessage(id, nil)); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestQueuedDuplicateRunsNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	runs := 0
	deliver := queuedInbox(t, s, func(ctx context.Context, q *postgres.Queue, msg *message.Message) error {
		runs++
		return queueEffect(ctx, q, msg)
	})
	deliver("once")
	deliver("once")
	if n := effects(t, s.Pool()); n != 1 || runs != 1 {
		t.Errorf("%d effects of %d runs", n, runs)
	}
}

func TestQueuedFailureIsRecorded(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	deliver := queuedInbox(t, s, func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
		q.Exec(insertEffect, msg.UUID)
		q.ExecRows(1, "UPDATE effect SET label = 'paid' WHERE key = $1", "nobody")
		return nil
	})
	deliver("fails")
	var status, attempts int
	var text string
	err := s.Pool().QueryRow(t.Context(), "SELECT status, attempts, error FROM millpond_failure").Scan(&status, &attempts, &text)
	if err != nil || attempts != 1 || stores.Status(status) != stores.StatusFailed || !strings.Contains(text, "queued statement 2 (UPDATE effect SET") {
		t.Errorf("status %d, %d attempts, %q, %v", status, attempts, text, err)
	}
	if n := effects(t, s.Pool()); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// unmetIsNotCommitted is the promise of ExecRows, of any way to queue.
func unmetIsNotCommitted(t *testing.T, s *postgres.Store, id string, exec func(q *postgres.Queue, rows int64, sql string, args ...any)) error {
	t.Helper()
	before := effects(t, s.Pool())
	_, err := queued(t, s, id, func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
		exec(q, 1, insertEffect, msg.UUID)
		exec(q, 2, "UPDATE effect SET label = 'paid' WHERE key = $1", msg.UUID)
		return nil
	})
	rows, ok := errors.AsType[*postgres.RowsError](err)
	statement, named := errors.AsType[*postgres.StatementError](err)
	switch v := look(t, s, pgtest.Claim(id)); {
	case effects(t, s.Pool()) != before || v.Outcome != stores.Claimable:
		return fmt.Errorf("something is committed: %s", v.Outcome)
	case !errors.Is(err, stores.ErrNotCommitted) || !ok || *rows != postgres.RowsError{Want: 2, Got: 1} || !named || statement.Number != 2:
		return fmt.Errorf("the attempt has ended with %w", err)
	}
	return nil
}

func TestQueuedRowsThatAreNotMetAreNotCommitted(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if err := unmetIsNotCommitted(t, s, "enforced", (*postgres.Queue).ExecRows); err != nil {
		t.Error(err)
	}
	careless := func(q *postgres.Queue, _ int64, sql string, args ...any) { q.Exec(sql, args...) }
	if err := unmetIsNotCommitted(t, s, "careless", careless); err == nil {
		t.Error("a queue that enforces no number of rows is not noticed")
	}
}

// hasCode reports whether an error is the server's with a code; "": it is not the server's.
func hasCode(err error, code string) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == code || !ok && code == ""
}

func TestQueuedErrorsNameTheirStatement(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	exec(t, s.Pool(), "CREATE TABLE account (id int PRIMARY KEY, balance int CHECK (balance >= 0))")
	for name, test := range map[string]struct {
		sql  string
		args []any
		code string
	}{
		"a constraint":       {"INSERT INTO account VALUES ($1, -1)", []any{1}, "23514"},
		"a division by zero": {"INSERT INTO account VALUES (2, 1 / $1::int)", []any{0}, "22012"},
		"a table":            {"INSERT INTO nowhere VALUES ($1)", []any{1}, "42P01"},
		"syntax":             {"INSERT INTO", nil, "42601"},
		"an argument":        {"INSERT INTO account VALUES ($1, 1)", []any{"one"}, "22P02"},
		"no argument":        {"INSERT INTO account VALUES ($1, 1)", []any{struct{}{}}, ""},
		"too few":            {"INSERT INTO account VALUES ($1, 1)", nil, ""},
		"named arguments":    {"INSERT INTO account VALUES (@id, -1)", []any{pgx.NamedArgs{"id": 1}}, "23514"},
	} {
		a, err := queued(t, s, name, func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
			q.Exec(insertEffect, msg.UUID)
			q.Exec(test.sql, test.args...)
			q.Exec(insertEffect, msg.UUID+", too")
			return nil
		})
		statement, ok := errors.AsType[*postgres.StatementError](err)
		if !ok || statement.Number != 2 || !hasCode(err, test.code) {
			t.Errorf("%s: %v", name, err)
		}
		if i := a.(stores.Interruptible).Interrupted(); i != nil { //nolint:forcetypeassert // a panic is a failure too
			t.Errorf("%s is taken for the database's: %v", name, i)
		}
	}
	if n := effects(t, s.Pool()); n != 0 {
		t.Errorf("%d effects", n)
	}
}

func TestQueuedStatementsDoNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, sql := range []string{
		"COMMIT", "commit and chain", "/* all */ ROLLBACK", "ABORT", "END", "BEGIN", "START TRANSACTION",
		"PREPARE TRANSACTION 'x'", "INSERT INTO effect VALUES ('a', 'b'); COMMIT",
	} {
		_, err := queued(t, s, sql, func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
			q.Exec(insertEffect, msg.UUID)
			q.Exec(sql)
			return nil
		})
		if !errors.Is(err, stores.ErrTxManaged) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	_, err := queued(t, s, "two", func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
		q.Exec("INSERT INTO effect VALUES ('a', 'b'); INSERT INTO effect VALUES ('c', 'd')")
		return nil
	})
	if !hasCode(err, "42601") {
		t.Error(err)
	}
	if n := effects(t, s.Pool()); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// Neither side may wait for the other to read.
func TestQueueOfManyLargeStatements(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const many = 4000
	label := strings.Repeat("x", 2000)
	_, err := queued(t, s, "many", func(_ context.Context, q *postgres.Queue, _ *message.Message) error {
		for i := range many {
			q.Exec("INSERT INTO effect VALUES ($1, $2) RETURNING label", fmt.Sprint(i), label)
		}
		for i := range 500 { // more texts than are kept prepared
			q.Exec(fmt.Sprintf("UPDATE effect SET label = '%d' WHERE key = $1", i), fmt.Sprint(i))
		}
		return nil
	})
	if n := effects(t, s.Pool()); n != many || err != nil {
		t.Errorf("%d effects, %v", n, err)
	}
}

// What makes room for new statements forgets nothing of those that are sent beside them.
func TestQueuedStatementsMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	const messages, texts = 3, 90
	for m := range messages {
		_, err := queued(t, s, fmt.Sprint(m), func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
			q.Exec(insertEffect, msg.UUID)
			for i := range texts {
				q.Exec(fmt.Sprintf("UPDATE effect SET label = '%d of %d' WHERE key = $1", i, m), msg.UUID)
			}
			return nil
		})
		if err != nil {
			t.Errorf("message %d: %v", m, err)
		}
	}
	if n := effects(t, s.Pool()); n != messages {
		t.Errorf("%d effects", n)
	}
}

// Behind a pooler nothing is prepared, so that the statements have a trip of their own.
func TestQueuedWhereNothingIsPrepared(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol", "cache_describe"} {
		s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "default_query_exec_mode", mode))
		if _, err := queued(t, s, "one", queueEffect); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if err := unmetIsNotCommitted(t, s, "unmet", (*postgres.Queue).ExecRows); err != nil &&
			!strings.Contains(err.Error(), "queued statement 2") { // it is not at COMMIT that it fails
			t.Errorf("%s: %v", mode, err)
		}
		if n := effects(t, s.Pool()); n != 1 {
			t.Errorf("%s: %d effects", mode, n)
		}
	}
}

func TestQueuedCommitWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	proxy.LoseCommitReply(1)
	_, err := queued(t, s, "unknown", queueEffect)
	completed, asked := s.Resolve(t.Context(), pgtest.Claim("unknown").Key)
	if !errors.Is(err, stores.ErrCommitUnknown) || asked != nil || !completed || effects(t, s.Pool()) != 1 {
		t.Errorf("%v, completed %t, %v", err, completed, asked)
	}
}

// A queue may follow what the handler does with the transaction, unwatched included.
func TestQueueBesideTheTransaction(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, err := queued(t, s, "both", func(ctx context.Context, q *postgres.Queue, msg *message.Message) error {
		tx, _ := postgres.TxFromContext(ctx)
		var batch pgx.Batch
		batch.Queue(insertEffect, "first")
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		return queueEffect(ctx, q, msg)
	})
	if n := effects(t, s.Pool()); n != 2 || err != nil {
		t.Errorf("%d effects, %v", n, err)
	}
}
