package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// locked lets somebody else hold a lock for the rest of the test.
func locked(t *testing.T, s *postgres.Store) {
	t.Helper()
	tx, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), "LOCK TABLE effect"); err != nil {
		t.Fatal(err)
	}
}

const lockNow = "LOCK TABLE effect NOWAIT"

// undoing are the ways to try for a lock and go on without it. The transaction is as good
// as before.
var undoing = map[string]func(ctx context.Context, tx pgx.Tx) error{
	"nested transaction": func(ctx context.Context, tx pgx.Tx) error {
		_ = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, lockNow)
			return err
		})
		return nil
	},
	"text": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SAVEPOINT a")
		_, _ = tx.Exec(ctx, lockNow)
		_, back := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT a")
		return errors.Join(err, back)
	},
	"batch": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SAVEPOINT a")
		var batch pgx.Batch
		batch.Queue(lockNow)
		_ = tx.SendBatch(ctx, &batch).Close()
		_, back := tx.Exec(ctx, "ROLLBACK TO a")
		return errors.Join(err, back)
	},
}

// What a savepoint has undone says nothing about how the attempt has ended.
func TestFailureUndoneBySavepointIsForgotten(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	locked(t, s)
	interrupted := func(a stores.Attempt) error {
		_ = a.Rollback(t.Context())                   // of a batch it is said that it may have ended the transaction
		return a.(stores.Interruptible).Interrupted() //nolint:forcetypeassert // a panic is a failure too
	}
	for name, undo := range undoing {
		a, tx := begin(t, s, pgtest.Claim(name))
		if err := undo(t.Context(), tx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := interrupted(a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		a, tx = begin(t, s, pgtest.Claim(name))
		if err := undo(t.Context(), tx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := tx.Exec(t.Context(), lockNow); err == nil || interrupted(a) == nil {
			t.Errorf("%s: a failure behind one that was undone is not noticed (%v)", name, err)
		}
	}
}

// A handler that cannot get a lock, goes on without it and says that its message will never
// do has said so once.
func TestHandledFailureDoesNotOverruleTheHandler(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	locked(t, s)
	in, err := middleware.NewInbox(s, middleware.InboxConfig{
		Service: "billing", Handler: "charge", Logger: slog.New(slog.DiscardHandler), Retry: middleware.RetryPolicy{MaxAttempts: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(undoing)
	all["not undone"] = func(ctx context.Context, tx pgx.Tx) error {
		_, _ = tx.Exec(ctx, lockNow)
		return nil
	}
	for name, undo := range all {
		for what, said := range map[string]error{"permanent": middleware.Permanent(errors.New("no such customer")), "failed": errors.New("no such customer")} {
			runs := 0
			handler := postgres.Handler(func(ctx context.Context, tx pgx.Tx, _ *message.Message) error {
				runs++
				return errors.Join(undo(ctx, tx), said)
			})
			want := 1
			if name == "not undone" && what == "failed" {
				want = 3 // it is the database's, and not counted
			}
			msg := message.NewMessage(name+", "+what, nil)
			_, err := in.Middleware(func(m *message.Message) ([]*message.Message, error) { return nil, handler(m) })(msg)
			if err != nil || runs != want {
				t.Errorf("%s, %s: %d runs, %v", name, what, runs, err)
			}
		}
	}
}
