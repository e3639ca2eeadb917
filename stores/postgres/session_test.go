package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// oneConnection returns a store whose messages share a connection as long as it lives.
func oneConnection(t *testing.T) *postgres.Store {
	t.Helper()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	if _, err := s.Pool().Exec(t.Context(), pgtest.SessionSetUp); err != nil {
		t.Fatal(err)
	}
	return s
}

func complete(t *testing.T, s *postgres.Store, id string, handle func(tx pgx.Tx)) {
	t.Helper()
	a, tx := begin(t, s, pgtest.Claim(id))
	handle(tx)
	if err := a.Commit(t.Context()); err != nil {
		t.Fatalf("%s: %v", id, err)
	}
}

func backendOf(t *testing.T, tx pgx.Tx) (pid uint32) {
	t.Helper()
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestWhatAHandlerMakesOfItsSessionReachesNoOtherMessage(t *testing.T) {
	t.Parallel()
	s := oneConnection(t)
	for i, mark := range pgtest.SessionMarks() {
		for _, end := range []string{"commit", "rollback"} {
			a, tx := begin(t, s, pgtest.Claim(fmt.Sprint(end, i)))
			exec(t, tx, mark.Text)
			if end == "commit" {
				if err := a.Commit(t.Context()); err != nil {
					t.Fatalf("%s: %v", mark.Text, err)
				}
			} else if err := a.Rollback(t.Context()); err != nil {
				t.Fatalf("%s: %v", mark.Text, err)
			}
			var found bool
			a, tx = begin(t, s, pgtest.Claim(fmt.Sprint("next to ", end, i)))
			if err := tx.QueryRow(t.Context(), mark.Found).Scan(&found); err != nil || found {
				t.Errorf("the next message meets %q after a %s: %v, %v", mark.Text, end, found, err)
			}
			if err := a.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Whoever has the connection itself may have done anything with it.
func TestAConnectionThatWasHandedOutServesNoOtherMessage(t *testing.T) {
	t.Parallel()
	s := oneConnection(t)
	set := func(conn *pgx.Conn) {
		if _, err := conn.Exec(t.Context(), "SET synchronous_commit = off"); err != nil {
			t.Fatal(err)
		}
	}
	for name, take := range map[string]func(tx pgx.Tx){
		"transaction": func(tx pgx.Tx) { set(tx.Conn()) },
		"rows": func(tx pgx.Tx) {
			rows, err := tx.Query(t.Context(), "SELECT 1")
			if err != nil {
				t.Fatal(err)
			}
			rows.Close()
			set(rows.Conn())
		},
		"scanner": func(tx pgx.Tx) {
			var conn connection
			if err := tx.QueryRow(t.Context(), "SELECT 1").Scan(&conn); err != nil {
				t.Fatal(err)
			}
			set(conn.Conn)
		},
		"batch": func(tx pgx.Tx) {
			var conn *pgx.Conn
			var batch pgx.Batch
			batch.Queue("SELECT 1").Query(func(rows pgx.Rows) error {
				conn = rows.Conn()
				return nil
			})
			if err := tx.SendBatch(t.Context(), &batch).Close(); err != nil {
				t.Fatal(err)
			}
			set(conn)
		},
		"name": func(tx pgx.Tx) {
			for range 2 {
				if _, err := tx.Prepare(t.Context(), "insert", "SET synchronous_commit = off"); err != nil {
					t.Fatal(err)
				}
			}
			exec(t, tx, "insert")
		},
	} {
		complete(t, s, name, take)
		complete(t, s, "next to "+name, func(tx pgx.Tx) {
			var value string
			if err := tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&value); err != nil || value != "on" {
				t.Errorf("%s: the next message commits with synchronous_commit %s, %v", name, value, err)
			}
		})
	}
}

// Handlers that keep to their transaction keep the connection, too.
func TestHabitsOfHandlersCostNoConnection(t *testing.T) {
	t.Parallel()
	s := oneConnection(t)
	var before uint32
	complete(t, s, "first", func(tx pgx.Tx) { before = backendOf(t, tx) })
	habits := map[string]func(tx pgx.Tx){
		"structs": func(tx pgx.Tx) {
			rows, _ := tx.Query(t.Context(), "SELECT 'a' AS key, 'b' AS label")
			if _, err := pgx.CollectRows(rows, pgx.RowToStructByName[struct{ Key, Label string }]); err != nil {
				t.Fatal(err)
			}
			rows, _ = tx.Query(t.Context(), "SELECT 'a' AS key, 'b' AS label")
			if _, err := pgx.CollectRows(rows, pgx.RowToMap); err != nil {
				t.Fatal(err)
			}
		},
		"a batch": func(tx pgx.Tx) {
			var n, m int
			var batch pgx.Batch
			batch.Queue("SELECT 1").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
			batch.Queue("SELECT 2").Query(func(rows pgx.Rows) (err error) {
				m, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
				return err
			})
			if err := tx.SendBatch(t.Context(), &batch).Close(); err != nil || n != 1 || m != 2 {
				t.Fatal(n, m, err)
			}
		},
		"copy": func(tx pgx.Tx) {
			if _, err := tx.CopyFrom(t.Context(), pgx.Identifier{"effect"}, []string{"key", "label"}, pgx.CopyFromRows([][]any{{"a", "b"}})); err != nil {
				t.Fatal(err)
			}
		},
		"a statement named by its text": func(tx pgx.Tx) {
			if _, err := tx.Prepare(t.Context(), "SELECT 1", "SELECT 1"); err != nil {
				t.Fatal(err)
			}
		},
		"a savepoint": func(tx pgx.Tx) {
			if err := pgx.BeginFunc(t.Context(), tx, func(pgx.Tx) error { return nil }); err != nil {
				t.Fatal(err)
			}
		},
	}
	for _, text := range pgtest.SessionHabits() {
		habits[text] = func(tx pgx.Tx) { exec(t, tx, text) }
	}
	for name, handle := range habits {
		complete(t, s, name, handle)
		complete(t, s, "next to "+name, func(tx pgx.Tx) {
			if pid := backendOf(t, tx); pid != before {
				t.Errorf("%s cost the connection", name)
				before = pid
			}
		})
	}
}

// What one consumer asks of its own commits must not make those of another forgettable:
// the server is killed before it writes down by itself what it was not asked to.
func TestAcksOfOthersOutliveAHandlerThatDoesNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	server := testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}))
	s := openStore(t, pgtest.WithParameters(t, server.NewDatabase(t), "pool_max_conns", "1"))
	hasty := pgtest.Claim("hasty")
	hasty.Key.Consumer.Handler = "hasty"
	if err := s.Register(t.Context(), stores.Registration{Consumer: hasty.Key.Consumer, Topic: "clicks"}); err != nil {
		t.Fatal(err)
	}
	a, tx := begin(t, s, hasty)
	exec(t, tx, "SET synchronous_commit = off")
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	const messages = 20
	for i := range messages {
		complete(t, s, fmt.Sprint(i), func(tx pgx.Tx) { exec(t, tx, insertEffect, fmt.Sprint(i)) })
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Pool().Reset()
	if n := effects(t, s.Pool()); n != messages {
		t.Errorf("%d of %d acked messages are left", n, messages)
	}
}

// pg_temp belongs to the session, however a handler has come to it.
func TestWhatIsMadeOnALocalSearchPathReachesNoOtherMessage(t *testing.T) {
	t.Parallel()
	s := oneConnection(t)
	for i, texts := range [][]string{
		{"SET LOCAL search_path = 'pg_temp'", "CREATE TABLE leftover (a text)"},
		{"SET LOCAL SCHEMA 'pg_temp'", "CREATE TABLE leftover AS SELECT 1 AS a"},
		{"SELECT set_config('search_path', 'pg_temp', true)", "SELECT 1 AS a INTO leftover"},
		{"SET LOCAL search_path = E'pg\\x5ftemp'; CREATE VIEW leftover AS SELECT 1 AS a"},
	} {
		complete(t, s, fmt.Sprint(i), func(tx pgx.Tx) {
			for _, text := range texts {
				if _, err := tx.Exec(t.Context(), text); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
		})
		complete(t, s, fmt.Sprint("next to ", i), func(tx pgx.Tx) {
			var found bool
			if err := tx.QueryRow(t.Context(), "SELECT to_regclass('pg_temp.leftover') IS NOT NULL").Scan(&found); err != nil || found {
				t.Errorf("%q: the next message meets it: %v, %v", texts, found, err)
			}
		})
	}
}

// A routine in standard SQL ends with END, which ends no transaction.
func TestHandlerMakesAFunctionInStandardSQL(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	complete(t, s, "function", func(tx pgx.Tx) {
		exec(t, tx, "CREATE FUNCTION one() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 2; SELECT CASE WHEN true THEN 1 ELSE 2 END; END")
	})
	var n int
	if err := s.Pool().QueryRow(t.Context(), "SELECT one()").Scan(&n); err != nil || n != 1 {
		t.Error(n, err)
	}
}
