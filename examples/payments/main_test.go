package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
)

// The workers of these tests are this test binary.
func TestMain(m *testing.M) {
	if fleet.IsWorker() {
		main()
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // by default each worker would take a second to exit
	os.Exit(m.Run())
}

// payments runs the program as a user would.
func payments(t *testing.T, args ...string) (code int, out, messages string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &stdout, &stderr)
	t.Logf("payments %s\n%s%s", strings.Join(args, " "), &stderr, &stdout)
	return code, stdout.String(), stderr.String()
}

func mustRun(t *testing.T, args ...string) (r result) {
	t.Helper()
	code, out, _ := payments(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v", code, err)
	}
	return r
}

func newDB(t *testing.T) string { return filepath.Join(t.TempDir(), "payments.db") }

func TestBooksAgree(t *testing.T) {
	t.Parallel()
	r := mustRun(t, "--db", newDB(t), "--orders", "80", "--kills", "5")
	if !r.right() || r.Agree != 80 || r.Doubled+r.Overbooks+r.Uncharged+r.Unbooked+r.Differ > 0 {
		t.Errorf("%+v", r)
	}
	if r.Kills < 3 || r.Lost == 0 || r.Replays == 0 || r.Unconfirmed == 0 {
		t.Errorf("the rig does not hurt: %+v", r)
	}
}

// The same rig without the lease shows damage, so that its zeros mean something.
func TestDamageWithoutLease(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	r := mustRun(t, "--db", newDB(t), "--orders", "40", "--kills", "2", "--without-lease")
	if r.right() || r.Doubled == 0 || r.Overbooks == 0 {
		t.Errorf("%+v", r)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	code, out, messages := payments(t, "--db", newDB(t), "--orders", "5", "--kills", "0")
	for _, want := range []string{"orders ", "answers lost", "charged twice         0", "Both books say the same"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the table", want)
		}
	}
	if code != 0 || !strings.Contains(messages, "the provider is at http://127.0.0.1:") {
		t.Errorf("exit code %d, or it is not said where the provider is", code)
	}
}

func TestDifferencesAreFound(t *testing.T) {
	t.Parallel()
	o, once := orderOf(0), charge{orderOf(0).Cents, "r-1"}
	for name, test := range map[string]struct {
		theirs, ours []charge
		want         result
	}{
		"once in both":   {[]charge{once}, []charge{once}, result{Agree: 1}},
		"charged twice":  {[]charge{once, {o.Cents, "r-2"}}, []charge{once}, result{Doubled: 1}},
		"booked twice":   {[]charge{once}, []charge{once, once}, result{Overbooks: 1}},
		"not charged":    {nil, []charge{once}, result{Uncharged: 1}},
		"not booked":     {[]charge{once}, nil, result{Unbooked: 1}},
		"another amount": {[]charge{once}, []charge{{o.Cents + 1, "r-1"}}, result{Differ: 1}},
	} {
		var r result
		if r.order(o, test.theirs, test.ours); r != test.want {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestProviderForgetsKeys(t *testing.T) {
	t.Parallel()
	p, err := openProvider()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	o := orderOf(0)
	_, first, _ := p.book("k", o)
	if _, again, _ := p.book("k", o); again != first || len(p.charges(o.OrderID)) != 1 {
		t.Errorf("a key that it has seen was charged again: %v", p.charges(o.OrderID))
	}
	p.seen["k"] = remembered{receipt: first}
	if _, again, _ := p.book("k", o); again == first || len(p.charges(o.OrderID)) != 2 {
		t.Errorf("it has not forgotten a key: %v", p.charges(o.OrderID))
	}
}

func TestWrongUseIsOneLine(t *testing.T) {
	t.Parallel()
	foreign := newDB(t)
	store, err := prepareDatabase(t.Context(), foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.DB().ExecContext(t.Context(), "ALTER TABLE payment RENAME TO precious"); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"-foo":               {"--foo"},
		"is no flag":         {"orders"},
		"xml":                {"-o", "xml"},
		"--orders is 0":      {"--orders", "0"},
		"--workers is 0":     {"--workers", "0"},
		"--kills is -1":      {"--kills", "-1"},
		"--db is empty":      {"--db", ""},
		"of another program": {"--db", foreign},
		"does not exist":     {"--db", filepath.Join(filepath.Dir(foreign), "none", "p.db")},
	} {
		code, _, messages := payments(t, args...)
		if code == 0 || !strings.Contains(messages, want) || strings.Count(messages, "\n") != 1 {
			t.Errorf("%v: exit code %d, messages:\n%s\nwant one line with %q", args, code, messages, want)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	code, _, messages := payments(t, "-h")
	if code != 0 || !strings.Contains(messages, "-without-lease") {
		t.Errorf("exit code %d", code)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, []string{"--db", newDB(t)}, &stdout, &stderr); code != 1 || stdout.Len() > 0 {
		t.Errorf("exit code %d\n%s%s", code, &stderr, &stdout)
	}
}
