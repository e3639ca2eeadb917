package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// tracing runs the program as a user would, with these variables.
func tracing(t *testing.T, variables []string, args ...string) (code int, out, messages string) {
	t.Helper()
	var environ []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "MILLPOND_") {
			environ = append(environ, variable)
		}
	}
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, append(environ, variables...), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func onKafka(t *testing.T) string {
	return brokerVariable + "=kafka://" + strings.Join(testenv.Kafka(t), ",") + "/?create_topics=true&partitions=1"
}

// The trace is the same on each broker and store: that of the page.
func TestEverywhereTheSame(t *testing.T) {
	for name, variables := range map[string]func(t *testing.T) []string{
		"kafka and sqlite": func(t *testing.T) []string { return []string{onKafka(t)} },
		"kafka and postgres": func(t *testing.T) []string {
			return []string{onKafka(t), storeVariable + "=" + testenv.Postgres(t).NewDatabase(t)}
		},
		"rabbitmq and sqlite": func(t *testing.T) []string {
			return []string{brokerVariable + "=" + testenv.PrivateRabbitMQ(t, rabbitmq.Packaged).URL()} // queues are left behind
		},
	} {
		t.Run(name, func(t *testing.T) {
			picture := filepath.Join(t.TempDir(), "traces.svg")
			code, out, messages := tracing(t, variables(t), "--svg", picture)
			if code != 0 {
				t.Fatalf("exit code %d\n%s%s", code, out, messages)
			}
			comparePage(t, out, picture)
		})
	}
}

func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		code      int
		want      string
		variables []string
		args      []string
	}{
		{0, "-svg", nil, []string{"-h"}},
		{2, "(-h shows all flags)", nil, []string{"--none"}},
		{2, `"more" is no flag`, nil, []string{"more"}},
		{2, "--timeout", nil, []string{"--timeout", "-1s"}},
		{1, "broker.url", []string{brokerVariable + "=gopher://user:s3cret@h"}, nil},
		{1, "store.url", []string{brokerVariable + "=kafka://127.0.0.1:1", storeVariable + "=mysql://user:s3cret@h/d"}, nil},
	} {
		code, out, messages := tracing(t, tt.variables, tt.args...)
		if code != tt.code || !strings.Contains(messages, tt.want) || strings.Contains(messages, "s3cret") || out != "" {
			t.Errorf("%q %q: exit code %d, want %d; %s%s", tt.variables, tt.args, code, tt.code, messages, out)
		}
	}
}

// Interrupted, the program stops its services and says so.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, messages bytes.Buffer
	code := run(ctx, []string{"--keep"}, append(os.Environ(), onKafka(t)), &stdout, writer(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("an order a second")) {
			cancel()
		}
		return messages.Write(p)
	}))
	if code != 0 || !strings.Contains(stdout.String(), "trace 3") {
		t.Errorf("exit code %d: %s%s", code, &stdout, &messages)
	}
	if code = run(ctx, nil, append(os.Environ(), onKafka(t)), &stdout, &messages); code != 1 || !strings.HasSuffix(messages.String(), "tracing: interrupted\n") {
		t.Errorf("exit code %d: %s", code, &messages)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
