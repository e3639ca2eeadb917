package testenv

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/kafka"
	"github.com/millpond-go/millpond/internal/testenv/shared"
)

var sharedKafka = shared.Server{
	Name:    "kafka",
	Version: kafka.Version + fmt.Sprint(kafka.DefaultSettings()),
	Start: func(ctx context.Context) (shared.Instance, error) {
		return kafka.Start(ctx, kafka.Config{})
	},
}

func init() { sharedKafka.SuperviseIfAsked() }

// Kafka returns the addresses of the Kafka broker that the packages of this test run
// share: those of MILLPOND_TEST_KAFKA_BROKERS if that is set, else of one that is started
// when it is first needed and ends by itself some time after the last test. Topics are
// not made by themselves; give yours names of their own, and do not stop the broker.
func Kafka(tb testing.TB) []string {
	tb.Helper()
	if brokers := os.Getenv(kafka.BrokersVariable); brokers != "" {
		return strings.Split(brokers, ",")
	}
	// Here, because what is wrong is easier to read than from the supervisor's log.
	if err := kafka.Install(tb.Context()); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	// Not the test's context: the next test uses the broker as well.
	address, err := sharedKafka.Open(context.Background())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return []string{address}
}

// WithKafkaSettings sets properties of server.properties, such as message.max.bytes.
func WithKafkaSettings(settings map[string]string) func(*kafka.Config) {
	return func(c *kafka.Config) { c.Settings = settings }
}

// WithKafkaSecured opens further ports, with TLS and SASL; see kafka.Server.Secured.
func WithKafkaSecured() func(*kafka.Config) {
	return func(c *kafka.Config) { c.Secured = true }
}

// PrivateKafka starts a broker of its own for this test, also when
// MILLPOND_TEST_KAFKA_BROKERS is set, and removes it when the test ends. If the test has
// failed, the end of the broker's log is shown.
func PrivateKafka(tb testing.TB, options ...func(*kafka.Config)) *kafka.Server {
	tb.Helper()
	var config kafka.Config
	for _, option := range options {
		option(&config)
	}
	server, err := kafka.Start(tb.Context(), config)
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
