package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A worker is about to put a message off that waits behind another one, which is taken
// over and completed just then. Nobody may think that the other one wakes the message.
func TestMessageIsWokenAlthoughItWasLockedWhenItsPredecessorEnded(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
	first := parkInOrder(t, s, "first", time.Hour)
	parkInOrder(t, s, "second", 0)
	goOn := putOffAndStandStill(t, s)
	done := completeTaken(t, s, first)
	goOn()
	if !done && !completeTaken(t, s, first) {
		t.Fatal("the first message cannot be taken over after the worker has gone on")
	}
	if all := due(t, s, 10); len(all) != 1 || string(all[0].Key.ID) != "second" {
		t.Errorf("after the first has ended %d messages are due; the second waits until its own time is up", len(all))
	}
}

// A worker puts a message off, and keeps the one before it from ending meanwhile. The one
// before that ends just then, and wakes the one between.
func TestMessageIsWokenAlthoughAWorkerPutsOffTheOneBehindIt(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
	first := parkInOrder(t, s, "first", time.Hour)
	second := parkInOrder(t, s, "second", time.Hour)
	parkInOrder(t, s, "third", 0)
	goOn := putOffAndStandStill(t, s)
	if !completeTaken(t, s, first) {
		t.Error("the first message cannot be taken over while a worker puts off the third")
	}
	v, err := s.Look(t.Context(), second.Key, second.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	second.Take = v.Failure.Version
	if completeTaken(t, s, second) {
		t.Error("the second message has ended while a worker put off the third for it to wake")
	}
	goOn()
	all := due(t, s, 10)
	if len(all) != 1 || string(all[0].Key.ID) != "second" {
		t.Fatalf("after the first has ended %d messages are due; the second waits until its own time is up", len(all))
	}
	second.Take = all[0].State.Version
	if !completeTaken(t, s, second) {
		t.Fatal("the second message cannot be taken over")
	}
	if all := due(t, s, 10); len(all) != 1 || string(all[0].Key.ID) != "third" {
		t.Errorf("after the second has ended %d messages are due; the third waits until its own time is up", len(all))
	}
}

// parkInOrder records a parked failure of one order key.
func parkInOrder(t *testing.T, s *postgres.Store, id string, dueIn time.Duration) stores.Claim {
	t.Helper()
	c := pgtest.Claim(id)
	c.OrderKey = []byte("order")
	f := parked(c)
	f.OrderKey, f.DueIn = c.OrderKey, dueIn
	c.Take = record(t, s, f)
	return c
}

// completeTaken takes a failed message over and commits, unless somebody has it in hand.
func completeTaken(t *testing.T, s *postgres.Store, c stores.Claim) bool {
	t.Helper()
	a, v, err := s.Begin(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if v.Outcome != stores.Claimed {
		return false
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return true
}

// putOffAndStandStill begins a Due that stands still in the middle of putting a message
// off for long, until goOn is called, which waits for its end.
func putOffAndStandStill(t *testing.T, s *postgres.Store) (goOn func()) {
	t.Helper()
	const lock = "4711"
	for _, text := range []string{
		`CREATE FUNCTION stand_still() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN PERFORM pg_advisory_xact_lock(` + lock + `); RETURN NEW; END $$`,
		`CREATE TRIGGER stand_still BEFORE UPDATE ON millpond_failure FOR EACH ROW
			WHEN (NEW.due_at > now() + interval '2 seconds' AND NOT NEW.reserved) EXECUTE FUNCTION stand_still()`,
	} {
		if _, err := s.Pool().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := s.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holder.Release)
	if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_lock("+lock+")"); err != nil {
		t.Fatal(err)
	}
	put := make(chan error, 1)
	go func() {
		_, err := s.Due(t.Context(), stores.DueQuery{Consumer: pgtest.Stock, Limit: 10, Reserve: time.Minute})
		put <- err
	}()
	testenv.Eventually(t, "the worker stands still in the middle", func() bool { return waitsFor(t, holder, lock) })
	return func() {
		if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_unlock("+lock+")"); err != nil {
			t.Fatal(err)
		}
		if err := <-put; err != nil {
			t.Fatal(err)
		}
	}
}

func waitsFor(t *testing.T, on *pgxpool.Conn, lock string) bool {
	t.Helper()
	var waiting bool
	err := on.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = "+lock+" AND NOT granted)").Scan(&waiting)
	return err == nil && waiting
}
