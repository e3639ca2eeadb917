package sqldb_test

import (
	"fmt"
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// oneConnection returns a store whose messages share a connection as long as it lives.
func oneConnection(t *testing.T, e entry) *sqldb.Store {
	t.Helper()
	s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
	s.DB().SetMaxOpenConns(1)
	if _, err := s.DB().ExecContext(t.Context(), pgtest.SessionSetUp); err != nil {
		t.Fatal(err)
	}
	return s
}

func complete(t *testing.T, s *sqldb.Store, id, text string) {
	t.Helper()
	a, tx := begin(t, s, pgtest.Claim(id))
	if _, err := tx.ExecContext(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// answer is what the next message's handler is told.
func answer[T any](t *testing.T, s *sqldb.Store, id, question string) (found T) {
	t.Helper()
	a, tx := begin(t, s, pgtest.Claim(id))
	if err := tx.QueryRowContext(t.Context(), question).Scan(&found); err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	if err := a.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWhatAHandlerMakesOfItsSessionReachesNoOtherMessage(t *testing.T) {
	t.Parallel()
	s := oneConnection(t, connector)
	if s.Capabilities().SessionShared {
		t.Error("the capabilities say otherwise")
	}
	for i, mark := range pgtest.SessionMarks() {
		complete(t, s, fmt.Sprint(i), mark.Text)
		if answer[bool](t, s, fmt.Sprint("next to ", i), mark.Found) {
			t.Errorf("the next message meets %q", mark.Text)
		}
	}
	// By a statement that was prepared, too.
	a, tx := begin(t, s, pgtest.Claim("prepared"))
	stmt, err := tx.PrepareContext(t.Context(), "SET synchronous_commit = off") //nolint:sqlclosecheck // the transaction closes it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stmt.ExecContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if value := answer[string](t, s, "next to prepared", "SHOW synchronous_commit"); value != "on" {
		t.Errorf("the next message commits with synchronous_commit %s", value)
	}
}

func TestHabitsOfHandlersCostNoConnection(t *testing.T) {
	t.Parallel()
	s := oneConnection(t, connector)
	before := answer[int](t, s, "first", "SELECT pg_backend_pid()")
	for i, text := range pgtest.SessionHabits() {
		complete(t, s, fmt.Sprint(i), text)
		if pid := answer[int](t, s, fmt.Sprint("next to ", i), "SELECT pg_backend_pid()"); pid != before {
			t.Errorf("%s cost the connection", text)
			before = pid
		}
	}
}

// What is not seen the capabilities say; what the server tells of is seen all the same.
func TestSessionOfACallersDBIsSharedAndSaysSo(t *testing.T) {
	t.Parallel()
	for _, e := range []entry{callersPG, callersPQ} {
		s := oneConnection(t, e)
		if !s.Capabilities().SessionShared {
			t.Errorf("%s: the capabilities do not say so", e.name)
		}
		complete(t, s, "role", "SET synchronous_commit = off")
		if value := answer[string](t, s, "next to role", "SHOW synchronous_commit"); value != "off" {
			t.Errorf("%s keeps it from other messages: synchronous_commit is %s", e.name, value)
		}
	}
	s := oneConnection(t, callersPG)
	complete(t, s, "read only", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
	if value := answer[string](t, s, "next to read only", "SHOW transaction_read_only"); value != "off" {
		t.Error("the next message can write nothing")
	}
}
