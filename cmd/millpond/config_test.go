package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// configFile writes a file and returns its name.
func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "service.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestConfigInitPrintsWhatConfigCheckTakes(t *testing.T) {
	s := newSession(t)
	starter := s.ok("config", "init")
	require.Equal(t, router.StarterConfig(), starter)
	require.Contains(t, s.ok("config", "check", configFile(t, starter)), "service: my-service\nbroker:\n  url: memory://\n")
	require.Contains(t, s.errB.String(), "service.yaml: no errors\n")
	require.Zero(t, s.openedTimes)
}

func TestConfigCheckListsMistakes(t *testing.T) {
	s := newSession(t)
	file := configFile(t, "service: a/b\nbroker: {url: 'memory://u:s3cret@h', in_flght: 1}\nstore: {url: 'sqlite://x.db'}\n")
	out := s.run(exitError, "config", "check", file)
	require.Equal(t, `service.yaml:1: service is "a/b": use a short name without '/' and control characters
service.yaml:2: broker.in_flght is not a field: did you mean broker.in_flight?
service.yaml:2: broker.url is wrong: memory: the URL names a user, host, path or fragment: write memory://?parameter=value, the broker has no address
`, out)
	require.Contains(t, s.errB.String(), "service.yaml: 3 errors\n")
	s.run(exitError, "config", "check", file, "-o", "json")
	r := s.object(exitError, "config", "check", file, "-o", "json")
	require.Len(t, r["problems"], 3)
	require.NotContains(t, s.outB.String()+s.errB.String(), "s3cret")

	t.Setenv("MILLPOND_BROKER_IN_FLIGHT", "none")
	require.Contains(t, s.run(exitError, "config", "check", file), `MILLPOND_BROKER_IN_FLIGHT: broker.in_flight is "none"`)

	s.run(exitError, "config", "check", filepath.Join(t.TempDir(), "millpond.yaml"))
	require.Contains(t, s.errB.String(), "write one with: millpond config init > millpond.yaml")
	s.run(exitUsage, "config", "check", "a", "b")
	s.run(exitUsage, "config")
}

func TestConfigCheckConnects(t *testing.T) {
	s := newSession(t)
	database := filepath.Join(t.TempDir(), "x.db")
	file := configFile(t, "service: a\nbroker: {url: 'memory://'}\nstore: {url: 'sqlite://"+database+"'}\n")
	require.Equal(t, []any{}, s.object(exitOK, "config", "check", file, "-o", "json")["problems"])
	require.Contains(t, s.ok("config", "check", "--connect", file), "store.url: "+database+" does not exist yet: the service creates it when it starts")
	require.NoFileExists(t, database, "a check creates nothing")
	never := configFile(t, "service: a\nbroker: {url: 'memory://'}\nstore: {url: 'sqlite://"+database+"?migrate=never'}\n")
	require.Contains(t, s.run(exitError, "config", "check", "--connect", never), "store.url: the store: stat "+database)

	store, err := sqlite.New(t.Context(), database, sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	out := s.ok("config", "check", "--connect", file)
	require.Contains(t, out, "# broker.url: it is there\n# store.url: it answers, and its tables do not exist yet: the service creates them when it starts\n")
	downed := configFile(t, "service: a\nbroker: {url: 'kafka://127.0.0.1:1/?connect_timeout=1s'}\nstore: {url: 'sqlite://"+database+"?migrate=never'}\n")
	out = s.run(exitError, "config", "check", "--connect", downed)
	require.Contains(t, out, "broker.url: kafka: 127.0.0.1:1")
	require.Contains(t, out, "millpond migrate up", "both are told")
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.Equal(t, true, s.object(exitOK, "config", "check", "--connect", file, "-o", "json")["connected"])
	require.Contains(t, s.ok("config", "check", "--connect", file), "# store.url: it answers, and its tables exist\n")
}

func TestConfigCheckConnectsToDestinations(t *testing.T) {
	s := newSession(t)
	text := "service: a\nbroker: {url: 'memory://'}\nstore: {url: 'sqlite://" + filepath.Join(t.TempDir(), "x.db") + "'}\ndestinations:\n  events: {url: 'memory://'}\n"
	require.Contains(t, s.ok("config", "check", "--connect", configFile(t, text)), "# broker.url: it is there\n# destinations.events.url: it is there\n")
	out := s.run(exitError, "config", "check", "--connect", configFile(t, text+"  away: {url: 'amqp://app:s3cret@127.0.0.1:1'}\n  mills: {url: 'kafka+watermill://127.0.0.1:1'}\n"))
	require.Contains(t, out, "# destinations.mills.url: checked as kafka://")
	require.Regexp(t, `:\d+: destinations.away.url: .*nothing listens there`, out)
	require.NotContains(t, out, "s3cret")
}

// Services that have Watermill's adapters are checked without linking them.
func TestConfigCheckOfWatermillsAdapters(t *testing.T) {
	s := newSession(t)
	text := func(brokerURL string) string {
		return "service: a\nbroker: {url: '" + brokerURL + "'}\nstore: {url: 'sqlite://x.db'}\n"
	}
	for scheme, brokerURL := range map[string]string{
		"kafka": "kafka+watermill://b1/?session_timeout=6s",
		"amqp":  "amqp+watermill://app:s3cret@mq",
		"amqps": "amqps+watermill://app:s3cret@mq",
		"sqs":   "sqs+watermill://?region=eu-central-1&visibility=6m",
	} {
		out := s.ok("config", "check", configFile(t, text(brokerURL)))
		require.Contains(t, out, "# broker.url: checked as "+scheme+"://, which has more parameters than "+scheme+"+watermill://")
		require.NotContains(t, out, "s3cret")
		next := "&"
		if !strings.Contains(brokerURL, "?") {
			next = "?"
		}
		out = s.run(exitError, "config", "check", configFile(t, text(brokerURL+next+"colour=blue")))
		require.Contains(t, out, `parameter "colour" is not known`)
	}
	out := s.run(exitError, "config", "check", "--connect", configFile(t, text("amqp+watermill://127.0.0.1:1")))
	require.Contains(t, out, "nothing listens there")
}
