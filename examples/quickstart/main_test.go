package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// The workers of these tests are this test binary.
func TestMain(m *testing.M) {
	if fleet.IsWorker() {
		main()
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // by default each worker would take a second to exit
	os.Exit(m.Run())
}

// quickstart runs the program as a user would, in a directory of its own.
func quickstart(t *testing.T, stdin string, args ...string) (code int, out, messages string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
	t.Logf("quickstart %s\n%s%s", strings.Join(args, " "), &stderr, &stdout)
	return code, stdout.String(), stderr.String()
}

func mustRun(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	code, out, _ := quickstart(t, stdin, append(args, "-o", "json")...)
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var r result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// oneStore has the flags of an empty database on the store whose turn it is.
func oneStore(t *testing.T) map[string][]string {
	t.Helper()
	return rotation.Some(t, 1, map[string][]string{
		"sqlite":   {"--db", filepath.Join(t.TempDir(), "quickstart.db")},
		"postgres": {"--store", testenv.Postgres(t).NewDatabase(t)},
	})
}

func TestEffectsHappenOnce(t *testing.T) {
	for name, store := range oneStore(t) {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat(store, []string{"--events-count", "400", "--kills", "6", "--seed", "3"})
			first := mustRun(t, "", args...)
			if first.Events != 400 || first.Lines <= 400 {
				t.Errorf("%d events in %d lines", first.Events, first.Lines)
			}
			if first.Kills != 6 || first.Redelivered == 0 {
				t.Errorf("%d kills, %d deliveries cut off: the rig does not hurt", first.Kills, first.Redelivered)
			}
			if first.AppliedOnce != 400 || first.AppliedNow != 400 {
				t.Errorf("applied once %d, now %d; want 400", first.AppliedOnce, first.AppliedNow)
			}
			if want := first.Deliveries - first.Redelivered - 400; first.DuplicatesStopped != want || want < 50 {
				t.Errorf("%d duplicates stopped, want %d", first.DuplicatesStopped, want)
			}
			if !first.Right() || len(first.Quarantined) > 0 {
				t.Errorf("%+v", first)
			}

			second := mustRun(t, "", args...)
			if second.AppliedNow != 0 || second.AppliedOnce != 400 || !second.Right() {
				t.Errorf("the second run applied %d; %+v", second.AppliedNow, second)
			}
			if fresh := mustRun(t, "", append(args, "--fresh", "--kills", "0")...); fresh.AppliedNow != 400 || !fresh.Right() {
				t.Errorf("a fresh run applied %d; %+v", fresh.AppliedNow, fresh)
			}
		})
	}
}

// The same rig without the inbox shows damage, so that its zeros mean something.
func TestDamageWithoutInbox(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	for name, store := range oneStore(t) {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat(store, []string{"--events-count", "300", "--kills", "3"})
			with := mustRun(t, "", args...)
			for range 2 { // its database begins empty each time
				without := mustRun(t, "", append(args, "--without-inbox")...)
				if without.Doubled < 50 || without.AppliedOnce+without.Doubled < 300 || without.Lost != 0 {
					t.Errorf("%+v", without)
				}
				if without.AppliedNow != without.Events+without.Doubled {
					t.Errorf("%d applied, but %d doubled", without.AppliedNow, without.Doubled)
				}
			}
			if again := mustRun(t, "", args...); again.AppliedNow != 0 || again.AppliedOnce != with.AppliedOnce {
				t.Errorf("the run without inbox was not in a database of its own: %+v", again)
			}
		})
	}
}

func TestBadLinesAreKept(t *testing.T) {
	lines := strings.Join([]string{
		`{"event_id":"a","sku":"x","quantity":1}`,
		`{"event_id":"a","sku":"x","quantity":2}`, // another event under a used id
		`{"event_id":"a","sku":"x","quantity":1}`,
		``,
		`not JSON`,
		`{"event_id":"b","sku":"x","quantity":0}`,
		`{"sku":"x","quantity":1}`,
		`{"event_id":"` + strings.Repeat("c", 300) + `","sku":"x","quantity":1}`,
		`{"event_id":"d","sku":"x\u0000","quantity":1}`,
		`{"event_id":"e","sku":"y","quantity":3}`,
	}, "\n")
	for name, store := range oneStore(t) {
		t.Run(name, func(t *testing.T) {
			for round := range 2 {
				r := mustRun(t, lines, append(store, "--events", "-", "--kills", "1", "--workers", "2")...)
				if r.Lines != 9 || r.Events != 7 || r.AppliedOnce != 2 || !r.Right() {
					t.Errorf("%+v", r)
				}
				if round == 1 && r.AppliedNow != 0 {
					t.Errorf("the second run applied %d", r.AppliedNow)
				}
				for reason, want := range map[string]int{"undecodable": 3, "no_key": 1, "key_too_long": 1, "conflict": 1} {
					if q := r.Quarantined[reason]; q == nil || q.Events != want {
						t.Errorf("%s: %+v, want %d", reason, q, want)
					}
				}
				if q := r.Quarantined["undecodable"]; q != nil && !strings.HasPrefix(q.Detail, "standard input:5: not a JSON object") {
					t.Errorf("the detail does not name the line: %s", q.Detail)
				}
			}
		})
	}
}

func TestTable(t *testing.T) {
	db := filepath.Join(t.TempDir(), "quickstart.db")
	args := []string{"--db", db, "--events", "testdata/orders.jsonl", "--kills", "2"}
	code, out, messages := quickstart(t, "", args...)
	for _, want := range []string{"events ", "deliveries", "applied once", "duplicates stopped", "quarantined", "Each event took effect once"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the table", want)
		}
	}
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(line, " ")
		if (name == "lost" || name == "doubled") && !strings.HasPrefix(strings.TrimSpace(rest), "0 ") {
			t.Errorf("%q", line)
		}
	}
	if code != 0 || !strings.Contains(messages, db) {
		t.Errorf("exit code %d, or it is not said where the database is", code)
	}
	if _, out, _ = quickstart(t, "", args...); !strings.Contains(out, "nothing was applied again") {
		t.Error("the second run does not say that everything was a duplicate")
	}
}

// A database that does not fit the events makes the program fail.
func TestDamageIsFound(t *testing.T) {
	for name, store := range oneStore(t) {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat(store, []string{"--events-count", "100", "--kills", "0", "--workers", "1", "-o", "json"})
			mustRun(t, "", args...)
			o, err := parseOptions(args, nil)
			if err != nil {
				t.Fatal(err)
			}
			damage(t, o, `UPDATE deduction SET quantity = quantity + 1 WHERE event_id = (SELECT min(event_id) FROM deduction)`)
			damage(t, o, `DELETE FROM deduction WHERE event_id = (SELECT max(event_id) FROM deduction)`)
			code, out, _ := quickstart(t, "", args...)
			var r result
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			if code != 1 || r.Lost != 1 || r.Altered != 1 || r.Doubled != 0 || r.StockWrong == 0 {
				t.Errorf("exit code %d, %+v", code, r)
			}
		})
	}
}

func damage(t *testing.T, o options, statement string) {
	t.Helper()
	db, err := openDatabase(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.DB().ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestWrongUseIsOneLine(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	empty := filepath.Join(dir, "empty")
	long := filepath.Join(dir, "long")
	for name, content := range map[string]string{text: strings.Repeat("no database ", 1000), empty: "\n\n", long: "{}\n" + strings.Repeat("x", maxLine+1)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db := filepath.Join(dir, "q.db")
	for _, tt := range []struct {
		code int
		want string
		args []string
	}{
		{2, "-foo", []string{"--foo"}},
		{2, "orders.jsonl", []string{"orders.jsonl"}},
		{2, "xml", []string{"-o", "xml"}},
		{2, "--workers is 0", []string{"--workers", "0"}},
		{2, "--kills is -1", []string{"--kills", "-1"}},
		{2, "--events-count is 0", []string{"--events-count", "0"}},
		{2, "exclude", []string{"--events", "x", "--events-count", "3"}},
		{2, "exclude", []string{"--store", "postgres://h/d", "--db", "x"}},
		{2, "postgres://", []string{"--store", "mysql://h/d"}},
		{2, "--db is empty", []string{"--db", ""}},
		{1, "no such file", []string{"--events", filepath.Join(dir, "none")}},
		{1, "is a directory", []string{"--events", dir}},
		{1, "no events", []string{"--events", empty}},
		{1, "long:2: the line is longer than 64 MiB", []string{"--events", long}},
		{1, "does not exist", []string{"--db", filepath.Join(dir, "none", "q.db")}},
		{1, "not a database", []string{"--db", text}},
		{1, "not a database", []string{"--db", text, "--fresh"}},
		{1, "cannot connect to 127.0.0.1", []string{"--store", "postgres://u:secret@127.0.0.1:1/d"}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			args := tt.args
			if !strings.Contains(strings.Join(args, " "), "--db") && !strings.Contains(strings.Join(args, " "), "--store") {
				args = append([]string{"--db", db}, args...)
			}
			code, _, messages := quickstart(t, "", args...)
			if code != tt.code || !strings.Contains(messages, tt.want) || strings.Count(messages, "\n") != 1 {
				t.Errorf("exit code %d, want %d; messages:\n%s\nwant one line with %q", code, tt.code, messages, tt.want)
			}
			if strings.Contains(messages, "secret") {
				t.Error("the password is shown")
			}
		})
	}
	if content, err := os.ReadFile(text); err != nil || !strings.HasPrefix(string(content), "no database") {
		t.Errorf("--fresh has touched a file that is no database: %v", err)
	}
}

func TestFreshKeepsOtherDatabases(t *testing.T) {
	o, err := parseOptions([]string{"--db", filepath.Join(t.TempDir(), "other.db"), "--fresh"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	damage(t, o, `CREATE TABLE precious (x TEXT)`)
	code, _, messages := quickstart(t, "", o.args...)
	if code != 1 || !strings.Contains(messages, "it stays") {
		t.Errorf("exit code %d: %s", code, messages)
	}
	damage(t, o, `INSERT INTO precious VALUES ('still here')`)
}

func TestHelp(t *testing.T) {
	code, _, messages := quickstart(t, "", "-h")
	if code != 0 || !strings.Contains(messages, "-without-inbox") {
		t.Errorf("exit code %d", code)
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr bytes.Buffer
	events := &endless{stop: cancel}
	args := []string{"--db", filepath.Join(t.TempDir(), "q.db"), "--events", "-", "--kills", "0"}
	code := run(ctx, args, events, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "interrupted") || stdout.Len() > 0 {
		t.Errorf("exit code %d\n%s%s", code, &stderr, &stdout)
	}
}

// endless is a standard input without end, during which the user loses patience.
type endless struct {
	n    int
	stop func()
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n++; e.n == 300 {
		e.stop()
	}
	return copy(p, fmt.Sprintf("{\"event_id\":\"%d\",\"sku\":\"x\",\"quantity\":1}\n", e.n)), nil
}
