package main

import (
	"bytes"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// The services of these tests are this test binary.
func TestMain(m *testing.M) {
	if fleet.IsWorker() {
		main()
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // by default each process would take a second to exit
	os.Exit(m.Run())
}

func pipeline(t *testing.T, args ...string) (code int, out, messages string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, &stdout, &stderr)
	t.Logf("pipeline %s\n%s%s", strings.Join(args, " "), &stderr, &stdout)
	return code, stdout.String(), stderr.String()
}

func TestTheLedgerBalances(t *testing.T) {
	t.Parallel()
	code, out, _ := pipeline(t, "--orders-count", "60", "--kills", "6", "--seed", "3")
	if code != 0 || !strings.Contains(out, "The ledger balances") || strings.Contains(out, "kills              0") {
		t.Errorf("exit code %d", code)
	}
}

func TestTheLedgerBalancesOnRealBrokers(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	code, out, _ := pipeline(t, "--orders-count", "40", "--kills", "4",
		"--orders", "kafka://"+strings.Join(testenv.Kafka(t), ",")+"/?create_topics=true&partitions=4&session_timeout=6s",
		"--shipments", testenv.RabbitMQ(t, rabbitmq.Versions()[0]))
	if code != 0 || !strings.Contains(out, "The ledger balances") {
		t.Errorf("exit code %d", code)
	}
}

// What the outbox prevents is seen without it.
func TestDamage(t *testing.T) {
	t.Parallel()
	code, out, _ := pipeline(t, "--orders-count", "40", "--kills", "9", "--without-outbox")
	if code != 0 || !strings.Contains(out, "This is what the outbox prevents") {
		t.Errorf("exit code %d", code)
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"-foo":               {"--foo"},
		"kills":              {"kills"},
		"--orders-count":     {"--orders-count", "0"},
		"--kills":            {"--kills", "-1"},
		"--timeout":          {"--timeout", "0s"},
		"name both brokers":  {"--orders", "kafka://localhost:9092"},
		"nothing more withi": {"--timeout", "1ns"},
	} {
		if code, out, messages := pipeline(t, args...); code == 0 || out != "" || !strings.Contains(messages, want) {
			t.Errorf("%q: exit code %d, want %q: %s%s", args, code, want, messages, out)
		}
	}
	if code, _, messages := pipeline(t, "-h"); code != 0 || !strings.Contains(messages, "without-outbox") {
		t.Errorf("-h: exit code %d: %s", code, messages)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	a, b := order{1, "desk", 2}, order{2, "lamp", 3}
	healthy := func() ledger {
		return ledger{{1: {a}, 2: {b}}, {1: {a}, 2: {b}}, {1: {a}, 2: {b}}}
	}
	if r := compare([]order{a, b}, healthy()); !r.right() || *r != (result{placed: 2, reserved: 2, shipped: 2}) {
		t.Errorf("%+v", r)
	}
	for name, tt := range map[string]struct {
		damage func(l ledger)
		want   result
	}{
		"not shipped":    {func(l ledger) { delete(l[2], 1) }, result{placed: 2, reserved: 2, shipped: 1, lost: 1, unbalanced: 1}},
		"lost":           {func(l ledger) { delete(l[1], 1); delete(l[2], 1) }, result{placed: 2, reserved: 1, shipped: 1, lost: 1, unbalanced: 1}},
		"shipped twice":  {func(l ledger) { l[2][1] = []order{a, a} }, result{placed: 2, reserved: 2, shipped: 2, doubled: 1, unbalanced: 1}},
		"nobody's":       {func(l ledger) { l[2][3] = []order{{3, "desk", 1}} }, result{placed: 2, reserved: 2, shipped: 2, wrong: 1, unbalanced: 1}},
		"not as ordered": {func(l ledger) { l[1][2] = []order{{2, "lamp", 4}} }, result{placed: 2, reserved: 1, shipped: 2, wrong: 1, unbalanced: 1}},
	} {
		l := healthy()
		for i := range l {
			l[i] = maps.Clone(l[i])
		}
		tt.damage(l)
		if r := compare([]order{a, b}, l); r.right() || *r != tt.want {
			t.Errorf("%s: %+v, want %+v", name, *r, tt.want)
		}
	}
}
