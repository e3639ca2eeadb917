package postgres_test

import (
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// A worker is about to put a message off that waits behind another one, which is taken
// over and completed just then. Nobody may think that the other one wakes the message.
func TestMessageIsWokenAlthoughItWasLockedWhenItsPredecessorEnded(t *testing.T) {
	t.Parallel()
	s := openStore(t, testenv.Postgres(t).NewDatabase(t))
	claims := make(map[string]stores.Claim)
	for _, id := range []string{"first", "second"} {
		c := pgtest.Claim(id)
		c.OrderKey = []byte("order")
		f := parked(c)
		f.OrderKey = c.OrderKey
		if id == "first" {
			f.DueIn = time.Hour
		}
		c.Take = record(t, s, f)
		claims[id] = c
	}
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
	defer holder.Release()
	if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_lock("+lock+")"); err != nil {
		t.Fatal(err)
	}
	put := make(chan error, 1)
	go func() {
		_, err := s.Due(t.Context(), stores.DueQuery{Consumer: pgtest.Stock, Limit: 10, Reserve: time.Minute})
		put <- err
	}()
	testenv.Eventually(t, "the worker stands still in the middle", func() bool {
		var waiting bool
		err := holder.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = "+lock+" AND NOT granted)").Scan(&waiting)
		return err == nil && waiting
	})

	complete := func() bool {
		a, v, err := s.Begin(t.Context(), claims["first"])
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
	done := complete()
	if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_unlock("+lock+")"); err != nil {
		t.Fatal(err)
	}
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	if !done && !complete() {
		t.Fatal("the first message cannot be taken over after the worker has gone on")
	}
	if all := due(t, s, 10); len(all) != 1 || string(all[0].Key.ID) != "second" {
		t.Errorf("after the first has ended %d messages are due; the second waits until its own time is up", len(all))
	}
}
