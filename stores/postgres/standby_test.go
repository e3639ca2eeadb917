package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

const waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

// withoutStandby returns a store whose server's commits wait for a standby that is away,
// and the key of one whose commit was given up.
func withoutStandby(t *testing.T, suspect bool) (s *postgres.Store, given stores.Key, comeBack func()) {
	t.Helper()
	s = openStore(t, testenv.PrivatePostgres(t).NewDatabase(t))
	set := func(standby string) {
		for _, text := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + standby + "'", "SELECT pg_reload_conf()"} {
			if _, err := s.Pool().Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
	}
	set("away")
	for i, begun := 0, time.Now(); time.Since(begun) < 30*time.Second; i++ { // until the server has read its settings
		c := pgtest.Claim(fmt.Sprint(i))
		a, tx := begin(t, s, c)
		exec(t, tx, insertEffect, fmt.Sprint(i))
		if suspect {
			tx.Conn()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := a.Commit(ctx)
		cancel()
		if err != nil {
			if !errors.Is(err, stores.ErrCommitUnknown) || errors.Is(err, stores.ErrNotCommitted) {
				t.Fatal(err)
			}
			return s, c.Key, func() { set("") }
		}
	}
	t.Fatal("no commit waits for the standby")
	return nil, stores.Key{}, nil
}

// Whoever gives up a COMMIT that waits for a synchronous standby must not end the server's
// wait, and must not take for completed what the standby does not have.
func TestCommitIsKnownOnceTheStandbyHasIt(t *testing.T) {
	for name, suspect := range map[string]bool{"watched": false, "suspect": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			knownOnceTheStandbyHasIt(t, suspect)
		})
	}
}

func knownOnceTheStandbyHasIt(t *testing.T, suspect bool) {
	t.Helper()
	s, key, comeBack := withoutStandby(t, suspect)
	var n int
	if err := s.Pool().QueryRow(t.Context(), waiting).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d commits wait for the standby, %v", n, err)
	}
	// Somebody cancels it: committed here, and nowhere else.
	if _, err := s.Pool().Exec(t.Context(), "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	completed, err := s.Resolve(ctx, key)
	cancel()
	if err == nil {
		t.Errorf("completed %v, of what the standby has nothing", completed)
	}
	comeBack()
	if completed, err := s.Resolve(t.Context(), key); err != nil || !completed {
		t.Errorf("the standby is back, and completed is %v, %v", completed, err)
	}
}

func TestCommitWhoseWaitWasCanceledIsUnknown(t *testing.T) {
	t.Parallel()
	s, _, comeBack := withoutStandby(t, false)
	a, tx := begin(t, s, pgtest.Claim("canceled"))
	pid := backendOf(t, tx)
	exec(t, tx, insertEffect, "canceled")
	done := make(chan error, 1)
	go func() { done <- a.Commit(t.Context()) }()
	for canceled := false; !canceled; {
		err := s.Pool().QueryRow(t.Context(), "SELECT coalesce((SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'), false)", pid).Scan(&canceled)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; !errors.Is(err, stores.ErrCommitUnknown) || errors.Is(err, stores.ErrNotCommitted) {
		t.Errorf("a commit that the standby does not have: %v", err)
	}
	comeBack()
}
