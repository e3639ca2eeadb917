package router_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/router"
)

const canary = "CANARY-3141592653"

func secretive() router.Config {
	c := router.Config{
		Service: "billing",
		Broker:  router.BrokerConfig{URL: router.NewURL("kafka://" + canary + ":" + canary + "@b1:9092,b2:9092/?tls=true&sasl_password=" + canary)},
		Store:   router.StoreConfig{URL: router.NewURL("postgres://app:" + canary + "@db/billing?sslpassword=" + canary + "&pool_max_conns=20")},
	}
	c.FingerprintKey = router.NewSecret(canary)
	c.Inbox.Keys = keys.First(keys.Native()).Then(keys.Metadata("event_id"))
	c.Handlers = map[string]router.HandlerConfig{"orders.v1": {InFlight: 3, Retry: middleware.RetryPolicy{Order: "key"}}}
	return c
}

func TestSecretsAreNotPrinted(t *testing.T) {
	c := secretive()
	printed := map[string]string{"String": c.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
		printed["config "+verb] = fmt.Sprintf(verb, c)
		printed["pointer "+verb] = fmt.Sprintf(verb, &c)
		printed["section "+verb] = fmt.Sprintf(verb, c.Broker)
		printed["sections "+verb] = fmt.Sprintf(verb, []any{c.Store, &c.Inbox, map[string]any{"k": c.FingerprintKey}})
		printed["url "+verb] = fmt.Sprintf(verb, c.Broker.URL)
		printed["secret "+verb] = fmt.Sprintf(verb, c.FingerprintKey)
	}
	for name, value := range map[string]any{"config": c, "pointer": &c, "broker": c.Broker, "url": c.Store.URL} {
		asJSON, err := json.Marshal(value)
		require.NoError(t, err)
		printed[name+" as JSON"] = string(asJSON)
		asYAML, err := yaml.Marshal(value)
		require.NoError(t, err)
		printed[name+" as YAML"] = string(asYAML)
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("text", "value", value)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("JSON", "value", value)
		printed[name+" logged"] = log.String()
	}
	for how, text := range printed {
		require.NotEmpty(t, text, how)
		require.NotContains(t, text, canary, how)
	}
	require.Contains(t, c.String(), `broker:
  url: "kafka://…@b1:9092,b2:9092/?tls=true&sasl_password=…"
store:
  url: "postgres://…@db/billing?sslpassword=…&pool_max_conns=20"
inbox:
  keys: [native, metadata:event_id]
  fingerprint:
    key: "(secret)"
handlers:
  orders.v1:
    in_flight: 3
    retry:
      order: key
`)
}

func TestURLsWithoutSecrets(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                      "",
		"memory://":                             "memory://",
		"sqlite:///var/x.db?migrate=never":      "sqlite:///var/x.db?migrate=never",
		"sqlite://x.db":                         "sqlite://x.db",
		"kafka://[::1]:9092/?pasword=hunter":    "kafka://[::1]:9092/?pasword=…",
		"kafka://b:1?pasword=123&sasl=plain":    "kafka://b:1?pasword=…&sasl=plain",
		"kafka://b:1?tls=true&tls_key=/etc/key": "kafka://b:1?tls=true&tls_key=…",
		"sqs://q?region=eu-central-1&endpoint=http://127.0.0.1:9324&queue={topic}-{group}": "sqs://q?region=eu-central-1&endpoint=http://127.0.0.1:9324&queue={topic}-{group}",
		"sqs://q?sns=arn:aws:sns:eu-central-1:1&endpoint=http%3A%2F%2Fh":                   "sqs://q?sns=arn:aws:sns:eu-central-1:1&endpoint=http%3A%2F%2Fh",
		"sqs://q?endpoint=https://h/?k=" + canary:                                          "sqs://q?endpoint=…",
		"sqs://q?endpoint=https://u:" + canary + "%40h":                                    "sqs://q?endpoint=…",
		"amqp://h/v?queue_type=quorum&retry_delays=1s,10m&tls_ca=/etc/ca.pem":              "amqp://h/v?queue_type=quorum&retry_delays=1s,10m&tls_ca=/etc/ca.pem",
		"postgres://h/db?sslmode=verify-full&options=-c%20x=" + canary:                     "postgres://h/db?sslmode=verify-full&options=…",
		"postgres://h/db?statement_timeout=40s&work_mem=4MB":                               "postgres://h/db?statement_timeout=40s&work_mem=…",
		"kafka://u:" + canary + "b1:9092":                                                  "kafka://…",
		"memory://?key_metadata=id&capacity=3":                                             "memory://?key_metadata=id&capacity=3",
		"kafka://b:1?Password=" + canary:                                                   "kafka://b:1?Password=…",
		"kafka://b:1?pass%77ord=" + canary:                                                 "kafka://b:1?pass%77ord=…",
		"kafka://b:1?%zz=" + canary:                                                        "kafka://b:1?…",
		"kafka://b:1?a=1;password=" + canary:                                               "kafka://b:1?…",
		"kafka://b:1#" + canary:                                                            "kafka://…",
		"postgres://u:" + canary + "/x@h/db":                                               "postgres://…",
		"postgres://u:" + canary + "%zz@h/db":                                              "postgres://…",
		canary + " ://x":                                                                   "(a URL that cannot be read)",
		"u:" + canary + "@h":                                                               "(a URL that cannot be read)",
		"//u:" + canary + "@h/x":                                                           "…",
		"postgres:u:" + canary + "@h/db":                                                   "(a URL that cannot be read)",
		"postgres://h/db?user=" + canary:                                                   "postgres://h/db?user=…",
		"amqps://h/?auth=x&ca=/etc/ca&secret=aa":                                           "amqps://h/?auth=…&ca=…&secret=…",
	} {
		got := router.NewURL(raw).String()
		require.NotContains(t, got, canary, raw)
		if want != "…" {
			require.Equal(t, want, got, raw)
		}
	}
}

// No mistake brings a secret into an error: a file with one byte less, or one more, in
// every place.
func TestErrorsHaveNoSecrets(t *testing.T) {
	file := fmt.Sprintf(`service: billing
broker:
  url: "kafka://app:%[1]s@b1:9092/?password=%[1]s"
store:
  url: postgres://app:%[1]s@db/billing
inbox:
  fingerprint: {key: '%[1]s', key_id: 2}
  keys: [uuid]
`, canary)
	mistakes := 0
	try := func(text string) {
		c, err := read(text)
		if err == nil {
			require.NotContains(t, c.String(), canary, text)
			return
		}
		mistakes++
		require.NotContains(t, err.Error(), canary, text)
	}
	for i := range file {
		if strings.HasPrefix(file[i:], canary) {
			continue
		}
		try(file[:i] + file[i+1:])
		for _, more := range "\n:#'\"{[&*|%@," {
			if inside := strings.LastIndex(file[:i], canary); inside >= 0 && i < inside+len(canary) {
				continue // a secret in two parts is not looked for
			}
			try(file[:i] + string(more) + file[i:])
		}
	}
	require.Greater(t, mistakes, 500)

	_, err := read(valid, "MILLPOND_INBOX_FINGERPRINT_KEY=s3cret")
	require.EqualError(t, err, "MILLPOND_INBOX_FINGERPRINT_KEY: inbox.fingerprint.key is (secret): use at least 16 bytes, such as from: openssl rand -base64 32")
	_, err = read(valid, "MILLPOND_STORE_URL=app:"+canary+"@db")
	require.EqualError(t, err, `MILLPOND_STORE_URL: store.url is "(a URL that cannot be read)": write scheme://…, such as sqlite://file.db or postgres://user@host/database`)
	_, err = read(valid, "MILLPOND_SERVICE=postgres://app:"+canary+"@db/x")
	require.NotContains(t, err.Error(), canary)
}
