package main

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
	"github.com/millpond-go/millpond/router"
)

// programVariable makes the program of this test binary.
const programVariable = "SWAP_IS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// files are the configurations, one for each broker.
var files = []string{
	"memory.yaml", "kafka.yaml", "kafka-watermill.yaml", "rabbitmq.yaml", "rabbitmq-watermill.yaml", "sqs.yaml", "sqs-watermill.yaml", "nats.yaml",
}

// withoutSQL differs in store.url, too.
const withoutSQL = "sqs-dynamodb.yaml"

func TestFilesDifferInOneLine(t *testing.T) {
	found, err := filepath.Glob("*.yaml")
	if err != nil || len(found) != len(files)+1 {
		t.Fatalf("there are %q, want %q and %s (%v)", found, files, withoutSQL, err)
	}
	first, config := read(t, files[0])
	for _, name := range files[1:] {
		lines, other := read(t, name)
		var differ []string
		for i := range max(len(first), len(lines)) {
			if i >= len(first) || i >= len(lines) || first[i] != lines[i] {
				differ = append(differ, lines[min(i, len(lines)-1)])
			}
		}
		if want := "  url: " + other.Broker.URL.Reveal(); len(differ) != 1 || differ[0] != want {
			t.Errorf("%s differs in %q, want %q", name, differ, want)
		}
		other.Broker.URL = config.Broker.URL
		if config.String() != other.String() { // which has every field that is set
			t.Errorf("%s means %v, and %s %v", files[0], config, name, other)
		}
	}
}

func TestWithoutSQLOnlyTheURLsDiffer(t *testing.T) {
	sqs, config := read(t, "sqs.yaml")
	lines, other := read(t, withoutSQL)
	for i, line := range lines {
		if url := strings.HasPrefix(line, "  url: "+other.Store.URL.Reveal()); !url && !strings.HasPrefix(line, "#") && line != sqs[i] {
			t.Errorf("%s has %q, want %q", withoutSQL, line, sqs[i])
		}
	}
	other.Store.URL = config.Store.URL
	if config.String() != other.String() {
		t.Errorf("sqs.yaml means %v, and %s %v", config, withoutSQL, other)
	}
}

func read(t *testing.T, name string) ([]string, router.Config) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	config, err := router.ReadConfig(os.DirFS("."), name, nil) // without the environment of the test
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n"), config
}

// table is what every broker must show. README.md has it, too.
//
//nolint:dupword // failed is the name of one line and the end of another
const table = `orders                60  that the shop has sent, some of them twice
applied once          59  to stock and reservations, in one transaction each
duplicates dropped    11  messages that changed nothing
retried                5  applied after attempts that had failed
failed                 1  for good, and kept with the reason
lost                   0  neither applied nor kept
doubled                0  reservations beyond the first of an order
wrong                  0  reservations and stocks that no order explains
`

// What documents call a BROKER is a file that TestEveryBrokerShowsTheSame runs.
func TestDocumentsNameTheFiles(t *testing.T) {
	for _, page := range []string{"README.md", "../../docs/brokers.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile(`make swap BROKER=([a-z-]+)(?: +# or ([a-z]+-watermill))?`).FindAllStringSubmatch(string(text), -1)
		if len(named) == 0 {
			t.Errorf("%s shows no command", page)
		}
		for _, m := range named {
			for _, broker := range m[1:] {
				if name := broker + ".yaml"; broker != "" && name != withoutSQL && !slices.Contains(files, name) {
					t.Errorf("%s: there is no %s", page, name)
				}
			}
		}
	}
}

// The same binary, with no other difference than the file, shows the same on every broker, by
// turns.
func TestEveryBrokerShowsTheSame(t *testing.T) {
	for _, name := range rotation.Turn(t, 3, append(slices.Clone(files), withoutSQL)...) {
		for at, brokerURL := range brokerURLs(t, name) {
			t.Run(name+at, func(t *testing.T) {
				variables := []string{"MILLPOND_BROKER_URL=" + brokerURL}
				if name == withoutSQL {
					variables = append(variables, "MILLPOND_STORE_URL="+testenv.DynamoDB(t).URL()+"&migrate=true")
				}
				out, messages, err := program(t, variables, "--config", name)
				if err != nil || out != table {
					t.Errorf("%v\n%s\nwant\n%s%s", err, out, table, messages)
				}
			})
		}
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n```\n"+table+"```\n") {
		t.Error("README.md shows another table")
	}
}

// brokerURLs are the URL of a file, with the addresses of the brokers that the tests use.
func brokerURLs(t *testing.T, name string) map[string]string {
	t.Helper()
	_, config := read(t, name)
	u, err := url.Parse(config.Broker.URL.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	scheme, _, _ := strings.Cut(u.Scheme, "+")
	switch scheme {
	case "kafka":
		u.Host = strings.Join(testenv.Kafka(t), ",")
	case "amqp":
		urls := make(map[string]string)
		for _, version := range rabbitmq.Versions() {
			server, err := url.Parse(testenv.RabbitMQ(t, version))
			if err != nil {
				t.Fatal(err)
			}
			u.User, u.Host, u.Path = server.User, server.Host, server.Path
			urls[" "+string(version)] = u.String()
		}
		return urls
	case "nats":
		server, err := url.Parse(testenv.NATS(t))
		if err != nil {
			t.Fatal(err)
		}
		u.Host = server.Host
	case "sqs":
		server := testenv.SQS(t)
		query := u.Query()
		query.Set("endpoint", server.Endpoint())
		query.Set("region", server.Region())
		u.RawQuery = query.Encode()
	}
	return map[string]string{"": u.String()}
}

// program runs this binary as the program, with nothing from the environment that would
// change its configuration.
func program(t *testing.T, variables []string, args ...string) (out, messages string, err error) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MILLPOND_") })
	command.Env = append(append(command.Env, variables...), programVariable+"=yes", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

func TestWrongUse(t *testing.T) {
	mistakes := filepath.Join(t.TempDir(), "mistakes.yaml")
	if err := os.WriteFile(mistakes, []byte("service: warehouse\nbroker: {urll: 'memory://'}\nstore: {url: 'sqlite://x.db'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code           int
		variable, want string
		args           []string
	}{
		{0, "", "-config", []string{"-h"}},
		{2, "", "--config examples/swap/memory.yaml", nil},
		{2, "", "-foo", []string{"--foo"}},
		{2, "", "memory.yaml", []string{"memory.yaml"}},
		{2, "", "--timeout", []string{"--config", "memory.yaml", "--timeout", "0s"}},
		{1, "", "none.yaml", []string{"--config", "none.yaml"}},
		{1, "", "did you mean broker.url?", []string{"--config", mistakes}},
		{1, "MILLPOND_BROKER_URL=pigeon://loft", "pigeon", []string{"--config", "memory.yaml"}},
		{1, "MILLPOND_BROKER_URL=memory://?capacity=many", "capacity", []string{"--config", "memory.yaml"}},
		{1, "MILLPOND_BROKER_URL=kafka://127.0.0.1:1/?connect_timeout=1s", "127.0.0.1:1", []string{"--config", "memory.yaml"}},
		{1, "MILLPOND_BROKER_URL=kafka+watermill://127.0.0.1:1/?connect_timeout=1s", "127.0.0.1:1", []string{"--config", "memory.yaml"}},
		{1, "", "nothing more within 1ns", []string{"--config", "memory.yaml", "--timeout", "1ns"}},
	} {
		out, messages, err := program(t, []string{tt.variable}, tt.args...)
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if code != tt.code || !strings.Contains(messages, tt.want) || out != "" {
			t.Errorf("%s %q: exit code %d, want %d and %q; %s%s", tt.variable, tt.args, code, tt.code, tt.want, messages, out)
		}
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, messages bytes.Buffer
	code := run(ctx, []string{"--config", "memory.yaml"}, &out, writer(func(p []byte) (int, error) {
		cancel() // it is about to publish
		return messages.Write(p)
	}))
	if code != 1 || !strings.HasSuffix(messages.String(), "swap: interrupted\n") || out.Len() > 0 {
		t.Errorf("exit code %d: %s%s", code, &messages, &out)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A table that cannot fail proves nothing.
func TestBooksShowDamage(t *testing.T) {
	shop := orders()
	whole := func() books {
		b := books{reserved: make(map[string][]order), stock: make(map[string]int64), failed: map[string]bool{shop[9].ID: true}}
		for _, article := range articles {
			b.stock[article] = openingStock
		}
		for i, o := range shop {
			if i != 9 {
				b.reserved[o.ID] = []order{o}
				b.stock[o.Article] -= o.Quantity
			}
		}
		return b
	}
	s := seen{acked: orderCount + 2, tripped: map[string]bool{shop[3].ID: true}}
	healthy := result{orders: orderCount, applied: orderCount - 1, dropped: 2, retried: 1, failed: 1}
	if r := compare(shop, whole(), s); r != healthy || !r.right() {
		t.Errorf("%+v, want %+v", r, healthy)
	}
	for name, tt := range map[string]struct {
		damage func(b books)
		change func(r *result)
	}{
		"lost": {
			func(b books) { delete(b.reserved, shop[0].ID); b.stock[shop[0].Article] += shop[0].Quantity },
			func(r *result) { r.applied--; r.lost++; r.dropped++ },
		},
		"not kept": {func(b books) { delete(b.failed, shop[9].ID) }, func(r *result) { r.failed--; r.lost++; r.dropped++ }},
		"reserved twice": {
			func(b books) {
				b.reserved[shop[0].ID] = []order{shop[0], shop[0]}
				b.stock[shop[0].Article] -= shop[0].Quantity
			},
			func(r *result) { r.applied--; r.doubled++; r.dropped-- },
		},
		"stock deducted twice": {func(b books) { b.stock["desk"]-- }, func(r *result) { r.wrong++ }},
		"nobody's order":       {func(b books) { b.reserved["order-99"] = nil }, func(r *result) { r.wrong++ }},
		"changed order": {
			func(b books) { b.reserved[shop[0].ID][0].Quantity++; b.stock[shop[0].Article]-- },
			func(r *result) { r.applied--; r.wrong++ },
		},
	} {
		b, want := whole(), healthy
		tt.damage(b)
		tt.change(&want)
		if r := compare(shop, b, s); r != want || r.right() {
			t.Errorf("%s: %+v, want %+v", name, r, want)
		}
	}
}
