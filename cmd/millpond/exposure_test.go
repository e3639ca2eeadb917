package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// A password that can travel without verified TLS to an address that is not a loopback is
// found by one rule on every adapter, without asking anybody.
func TestExposure(t *testing.T) {
	for _, name := range []string{"PGPASSWORD", "PGPASSFILE", "PGSSLMODE", "MILLPOND_KAFKA_USERNAME", "MILLPOND_AMQP_USERNAME", "HOME"} {
		t.Setenv(name, "")
	}
	authority := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(authority, []byte(someAuthority), 0o600))
	for rawURL, says := range map[string]string{ // "" nothing
		"postgres://app:c4nary@db/shop":                                            "to db:5432 in plain text: write sslmode=verify-full",
		"postgres://app:c4nary@db/shop?sslmode=disable":                            "to db:5432 in plain text",
		"postgres://app:c4nary@db/shop?sslmode=prefer":                             "to db:5432 in plain text",
		"postgres://app:c4nary@db/shop?sslmode=require":                            "to db:5432, or to whoever answers in its place, because no certificate is verified",
		"postgres://app:c4nary@db/shop?sslmode=verify-ca":                          "no certificate is verified", // any public authority will do
		"postgres://app:c4nary@db/shop?sslmode=verify-ca&sslrootcert=" + authority: "",
		"postgres://app:c4nary@db/shop?sslmode=verify-full":                        "",
		"postgres://app:c4nary@db/shop?sslmode=require&channel_binding=require":    "",
		"postgres://app:c4nary@db/shop?require_auth=scram-sha-256":                 "",
		"postgres://app@db/shop?password=c4nary":                                   "to db:5432 in plain text",
		"postgres://app:c4nary@127.0.0.1,db:5433/shop?sslmode=disable":             "to db:5433 in plain text",
		"postgres://app:c4nary@localhost/shop?sslmode=disable":                     "",
		"postgres://app:c4nary@/shop?host=/run/postgresql":                         "",
		"postgres://app@db/shop?sslmode=disable":                                   "",
		"postgresql://app:c4nary@db/shop":                                          "to db:5432 in plain text",
		"postgres+sql://app:c4nary@db/shop":                                        "sqldb: the password can travel to db:5432 in plain text",
		"postgresql+sql://app:c4nary@db/shop?sslmode=verify-full":                  "",
		"mysql://app:c4nary@db/shop":                                               "mysql: the password can travel to db:3306 in plain text: write tls=true",
		"mysql://app:c4nary@db:3307/shop?tls=preferred":                            "to db:3307 in plain text",
		"mysql://app:c4nary@db/shop?tls=skip-verify":                               "no certificate is verified",
		"mysql://app:c4nary@db/shop?tls=true":                                      "",
		"mysql://app:c4nary@[::1]/shop":                                            "",
		"mysql://app@db/shop":                                                      "",
		"sqlite://shop.db":                                                         "",
		"kafka://b1,127.0.0.1:2?sasl=plain":                                        "kafka: the password can travel to b1 in plain text: write tls=true",
		"kafka://b1?sasl=plain&tls=true":                                           "",
		"kafka://b1?sasl=scram-sha-256":                                            "", // it does not travel
		"kafka://b1":                                                               "",
		"kafka://localhost?sasl=plain":                                             "",
		"kafka+watermill://b1:1?sasl=plain":                                        "kafka: the password can travel to b1:1 in plain text",
		"amqp://app:c4nary@mq":                                                     "amqp: the password can travel to mq in plain text: write amqps://",
		"amqp://app:c4nary@127.0.0.1:1,mq:2/v":                                     "to mq:2 in plain text",
		"amqp://guest:guest@localhost":                                             "",
		"amqp://guest:guest@mq":                                                    "", // no secret
		"amqp://guest:c4nary@mq":                                                   "to mq in plain text",
		"amqp://mq":                                                                "",
		"amqps://app:c4nary@mq":                                                    "",
		"amqp+watermill://app:c4nary@mq":                                           "to mq in plain text",
		"amqps+watermill://app:c4nary@mq":                                          "",
		"sqs://q?region=eu-central-1&endpoint=http://sqs.example:9324":             "", // requests are signed, the key is not sent
		"memory://": "",
	} {
		mux, check := interface {
			Exposure(rawURL string) error
		}(stores.DefaultMux()), stores.DefaultMux().Check
		for _, scheme := range brokers.DefaultMux().Schemes() {
			if len(rawURL) > len(scheme) && rawURL[:len(scheme)+1] == scheme+":" {
				mux, check = brokers.DefaultMux(), brokers.DefaultMux().Check
			}
		}
		require.NoError(t, check(rawURL), rawURL)
		err := mux.Exposure(rawURL)
		if says == "" {
			require.NoError(t, err, rawURL)
			continue
		}
		require.ErrorContains(t, err, says, rawURL)
		require.NotContains(t, err.Error(), "c4nary", rawURL)
	}
	t.Setenv("PGPASSWORD", "c4nary")
	require.ErrorContains(t, stores.DefaultMux().Exposure("postgres://app@db/shop"), "to db:5432 in plain text")
	require.NoError(t, brokers.DefaultMux().Exposure("nats://n1"))
	t.Setenv("MILLPOND_NATS_USERNAME", "app")
	t.Setenv("MILLPOND_NATS_PASSWORD", "c4nary")
	require.ErrorContains(t, brokers.DefaultMux().Exposure("nats://n1,localhost"), "nats: the password can travel to n1 in plain text: write tls=true")
	require.NoError(t, brokers.DefaultMux().Exposure("nats://n1?tls=true"))
	require.NoError(t, brokers.DefaultMux().Exposure("nats://n1?credentials=/app.creds"))
	t.Setenv("MILLPOND_AMQP_USERNAME", "app")
	t.Setenv("MILLPOND_AMQP_PASSWORD", "c4nary")
	require.ErrorContains(t, brokers.DefaultMux().Exposure("amqp://mq"), "to mq in plain text")
}

func TestConfigCheckWarns(t *testing.T) {
	for _, name := range []string{"PGPASSWORD", "PGPASSFILE", "PGSSLMODE"} {
		t.Setenv(name, "")
	}
	s := newSession(t)
	const text = "service: a\nbroker: {url: 'amqp://app:c4nary@mq'}\nstore: {url: 'postgres://app@db/shop'}\nhttp: {listen: ':9464'}\n"
	file := configFile(t, text)
	const plain = "service.yaml:2: broker.url is amqp://…@mq: amqp: the password can travel to mq in plain text: write amqps://"
	const everywhere = `service.yaml:4: http.listen is ":9464", all interfaces, without authentication: name an address`
	out := s.ok("config", "check", file)
	require.Contains(t, out, "# warning: "+plain)
	require.Contains(t, out, "# warning: "+everywhere)
	require.Len(t, s.object(exitOK, "config", "check", file, "-o", "json")["warnings"], 2)
	out = s.run(exitError, "config", "check", "--strict", file)
	require.Contains(t, out, "\n"+everywhere)
	require.Contains(t, out, plain)
	require.Contains(t, s.errB.String(), "service.yaml: 2 warnings, which --strict treats as errors")
	out = s.run(exitError, "config", "check", configFile(t, text+"require_tls: true\n"))
	require.Contains(t, out, "service.yaml:2: broker.url is amqp://…@mq, and require_tls is true: amqp: the password can travel to mq in plain text")
	require.NotContains(t, out+s.errB.String(), "c4nary")

	// A variable that was exported for something else is not silent, and errors name it.
	elsewhere := "sqlite://" + filepath.Join(t.TempDir(), "other.db") + "?migrate=never"
	t.Setenv("MILLPOND_STORE_URL", elsewhere)
	file = configFile(t, "service: a\nbroker: {url: 'memory://'}\nstore:\n  url: postgres://app:c4nary@db/shop\n")
	out = s.ok("config", "check", file)
	require.Contains(t, out, "# warning: MILLPOND_STORE_URL: store.url is "+elsewhere+", which overrides the postgres://…@db/shop of service.yaml:4: unset the variable if the file is right")
	out = s.run(exitError, "config", "check", "--connect", file)
	require.Contains(t, out, "MILLPOND_STORE_URL: store.url: the store: stat ")
	require.Contains(t, s.errB.String(), "--connect has found errors: check MILLPOND_STORE_URL\n")
	t.Setenv("MILLPOND_STORE_URL", "postgres://app:c4nary@db/shop?sslmode=verify-full")
	require.NotContains(t, s.ok("config", "check", file), "warning", "a password for the same place")
}

// someAuthority is a certificate whose key nobody has any more.
const someAuthority = `-----BEGIN CERTIFICATE-----
MIIBfjCCASWgAwIBAgIUaPo97+rq+OsdgjP440Puj75tXJkwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJYXV0aG9yaXR5MCAXDTI2MTEyMjE4MTczNloYDzIxMjYxMDI5
MTgxNzM2WjAUMRIwEAYDVQQDDAlhdXRob3JpdHkwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATJCFt5TJc0prIdNd2RgiZ9xucJuU9gKjUn7y/5JBL82fTlBFy1ZBk8
X2sbszCtpi+ZyWaorcKjnqLaENvODY6To1MwUTAdBgNVHQ4EFgQUQizQSUJEJLrc
wHtwUk3BYokA4h4wHwYDVR0jBBgwFoAUQizQSUJEJLrcwHtwUk3BYokA4h4wDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiB1HF48jsE+/TriWtYnL/BI
N8dsnZNgR+WW8ess3U7qpQIgDOtq65VlD1+sJSQ3CWt1auxtcnDXtObDfgiJNTjN
90M=
-----END CERTIFICATE-----
`
