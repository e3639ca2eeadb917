package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// millpond is the operator's command, built once for all tests.
var millpond = sync.OnceValues(func() (string, error) {
	binary, remove, err := buildMillpond(context.Background(), options{})
	removeMillpond = remove
	return binary, err
})

var removeMillpond func() error

func TestMain(m *testing.M) {
	code := m.Run()
	if removeMillpond != nil {
		_ = removeMillpond()
	}
	os.Exit(code)
}

// failures runs the program as a user would.
func failures(t *testing.T, args ...string) (code int, out, messages string) {
	t.Helper()
	binary, err := millpond()
	if err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	var stderr lines
	code = run(t.Context(), append([]string{"--millpond", binary}, args...), &stdout, &stderr)
	return code, stdout.String(), stderr.text.String()
}

// lines takes the messages of the story and of the service, as a standard error does.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// collapse makes tables independent of the width of their columns.
func collapse(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return b.String()
}

func TestEveryOrderIsAccountedFor(t *testing.T) {
	for name, store := range rotation.Some(t, 1, map[string]func(t *testing.T) []string{
		"sqlite":   func(t *testing.T) []string { return []string{"--db", filepath.Join(t.TempDir(), "failures.db")} },
		"postgres": func(t *testing.T) []string { return []string{"--store", testenv.Postgres(t).NewDatabase(t)} },
	}) {
		t.Run(name, func(t *testing.T) {
			args := store(t)
			for range 2 { // the second run begins with an empty database, too
				code, out, messages := failures(t, append(args, "--verbose")...)
				if code != 0 {
					t.Fatalf("exit code %d\n%s%s", code, out, messages)
				}
				text := collapse(out)
				for _, want := range []string{
					"\n5 charged later, after 10 timeouts of the provider\n",
					"\n3 failed at once: the card is declined\n",
					"\n5 failed after 4 attempts, each of which panicked\n",
					"\n1 in quarantine: another order has its id\n",
					"\n5 messages are due now, and wait for a retry worker\n",
					"\n1 rejected\n",
					"\ndiscarded 3 messages\n",
					"\nno message is pending or failed\n",
					"\norders 61 that the shop has sent, some of them twice\n",
					"\ncharged once 58 as they were sent\n",
					"\ndiscarded 3 by an operator, and not charged\n",
					"\nlost 0 ", "\ndoubled 0 ", "\nwrong 0 ",
				} {
					if !strings.Contains(text, want) {
						t.Errorf("there is no %q", want)
					}
				}
				if t.Failed() {
					t.Logf("%s%s", out, messages)
				}
			}
		})
	}
}

func TestOtherDatabasesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.db")
	execute(t, other, `CREATE TABLE precious (x TEXT)`)
	for path, want := range map[string]string{text: "not a database", other: "stays as it is", filepath.Join(dir, "none", "x.db"): "none"} {
		if code, _, messages := failures(t, "--db", path); code != 1 || !strings.Contains(messages, want) {
			t.Errorf("%s: exit code %d: %s", path, code, messages)
		}
	}
	execute(t, other, `INSERT INTO precious VALUES ('still here')`)

	url := testenv.Postgres(t).NewDatabase(t)
	d, err := openPostgres(t.Context(), options{store: url})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.close() }()
	if _, err := d.db.ExecContext(t.Context(), `CREATE TABLE precious (x TEXT)`); err != nil {
		t.Fatal(err)
	}
	if code, _, messages := failures(t, "--store", url); code != 1 || !strings.Contains(messages, "stays as it is") {
		t.Errorf("exit code %d: %s", code, messages)
	}
	if _, err := d.db.ExecContext(t.Context(), `INSERT INTO precious VALUES ('still here')`); err != nil {
		t.Error(err)
	}
}

func execute(t *testing.T, path, statement string) {
	t.Helper()
	store, err := sqlite.New(t.Context(), path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if _, err := store.DB().ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestWrongUse(t *testing.T) {
	for _, tt := range []struct {
		code int
		want string
		args []string
	}{
		{0, "-millpond", []string{"-h"}},
		{2, "-foo", []string{"--foo"}},
		{2, "orders.jsonl", []string{"orders.jsonl"}},
		{2, "--db is empty", []string{"--db", ""}},
		{2, "exclude", []string{"--store", "postgres://h/d", "--db", "x"}},
		{2, "postgres://", []string{"--store", "mysql://h/d"}},
		{1, "not valid", []string{"--store", "postgres://u:secret@[::1/d"}},
		{1, "127.0.0.1", []string{"--store", "postgres://u:secret@127.0.0.1:1/d"}},
	} {
		code, out, messages := failures(t, tt.args...)
		if code != tt.code || !strings.Contains(messages, tt.want) || strings.Contains(messages, "secret") || out != "" {
			t.Errorf("%q: exit code %d, want %d; %s%s", tt.args, code, tt.code, messages, out)
		}
	}
}

func TestInterrupt(t *testing.T) {
	binary, err := millpond()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var messages bytes.Buffer
	args := []string{"--millpond", binary, "--db", filepath.Join(t.TempDir(), "failures.db")}
	code := run(ctx, args, writer(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("$ millpond cause ls")) {
			cancel()
		}
		return len(p), nil
	}), &messages)
	if code != 1 || !strings.HasSuffix(messages.String(), "failures: interrupted\n") {
		t.Errorf("exit code %d: %s", code, &messages)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
