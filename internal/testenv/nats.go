package testenv

import (
	"context"
	"os"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/nats"
	"github.com/millpond-go/millpond/internal/testenv/shared"
)

var sharedNATS = shared.Server{
	Name: "nats", Version: nats.Version,
	Start: func(ctx context.Context) (shared.Instance, error) { return nats.Start(ctx) },
}

func init() { sharedNATS.SuperviseIfAsked() }

// NATS returns the URL of the NATS server with JetStream that the packages of this test run
// share: MILLPOND_TEST_NATS_URL if that is set, else one that is started when it is first
// needed and ends by itself some time after the last test. Give subjects, streams and
// groups names of their own, and do not stop the server.
func NATS(tb testing.TB) string {
	tb.Helper()
	if url := os.Getenv(nats.URLVariable); url != "" {
		return url
	}
	// Here, because what is wrong is easier to read than from the supervisor's log.
	if err := nats.Install(tb.Context()); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	// Not the test's context: the next test uses the server as well.
	url, err := sharedNATS.Open(context.Background())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return url
}

// PrivateNATS starts a server of its own for this test, also when MILLPOND_TEST_NATS_URL is
// set, and removes it when the test ends. If the test has failed, the end of the server's
// log is shown.
func PrivateNATS(tb testing.TB) *nats.Server {
	tb.Helper()
	server, err := nats.Start(tb.Context())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the server's log ends with:%s", host.Tail(server.LogFile(), 0))
		}
		if err := server.Close(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return server
}
