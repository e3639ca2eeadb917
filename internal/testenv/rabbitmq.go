package testenv

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
	"github.com/millpond-go/millpond/internal/testenv/shared"
)

var sharedRabbitMQ = map[rabbitmq.Version]*shared.Server{}

func init() {
	for _, version := range rabbitmq.Versions() {
		server := &shared.Server{
			Name:    "rabbitmq-" + string(version),
			Version: fmt.Sprint(rabbitmq.DefaultSettings()),
			Start: func(ctx context.Context) (shared.Instance, error) {
				return rabbitmq.Start(ctx, rabbitmq.Config{Version: version})
			},
		}
		server.SuperviseIfAsked()
		sharedRabbitMQ[version] = server
	}
}

// RabbitMQ returns the URL of the RabbitMQ of a version that the packages of this test run
// share: what MILLPOND_TEST_RABBITMQ_URL says if that is set, whatever its version, else
// one that is started when it is first needed and ends by itself some time after the last
// test. Give your queues and exchanges names of their own, remove them when the test
// ends, and do not stop the broker.
func RabbitMQ(tb testing.TB, version rabbitmq.Version) string {
	tb.Helper()
	if url := os.Getenv(rabbitmq.URLVariable); url != "" {
		return url
	}
	// Here, because what is wrong is easier to read than from the supervisor's log.
	if err := rabbitmq.Install(tb.Context(), version); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	// Not the test's context: the next test uses the broker as well.
	url, err := sharedRabbitMQ[version].Open(context.Background())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return url
}

// WithRabbitMQSettings sets keys of rabbitmq.conf, such as consumer_timeout.
func WithRabbitMQSettings(settings map[string]string) func(*rabbitmq.Config) {
	return func(c *rabbitmq.Config) { c.Settings = settings }
}

// PrivateRabbitMQ starts a broker of its own for this test, also when
// MILLPOND_TEST_RABBITMQ_URL is set, and removes it when the test ends. If the test has
// failed, the end of the broker's log is shown.
func PrivateRabbitMQ(tb testing.TB, version rabbitmq.Version, options ...func(*rabbitmq.Config)) *rabbitmq.Server {
	tb.Helper()
	config := rabbitmq.Config{Version: version}
	for _, option := range options {
		option(&config)
	}
	server, err := rabbitmq.Start(tb.Context(), config)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the broker's log ends with:%s", host.Tail(server.LogFile(), 0))
		}
		if err := server.Close(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return server
}
