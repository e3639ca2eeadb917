package testenv

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/postgres"
	"github.com/millpond-go/millpond/internal/testenv/shared"
)

var (
	sharedPostgres   = sharedPostgresWith("postgres", nil)
	volatilePostgres = sharedPostgresWith("postgres-volatile", map[string]string{"fsync": "off"})
)

func sharedPostgresWith(name string, settings map[string]string) *shared.Server {
	return &shared.Server{
		Name:    name,
		Version: fmt.Sprint(postgres.DefaultSettings(), settings),
		Start: func(ctx context.Context) (shared.Instance, error) {
			return postgres.Start(ctx, postgres.Config{Settings: settings})
		},
	}
}

func init() {
	sharedPostgres.SuperviseIfAsked()
	volatilePostgres.SuperviseIfAsked()
}

// cleanupTimeout bounds what a test does after its end.
const cleanupTimeout = 30 * time.Second

// PostgresServer is a running PostgreSQL that tests share. Do not stop it, and change
// nothing outside of the test's own databases.
type PostgresServer struct{ url string }

// Postgres returns the server that the packages of this test run share: the one at
// MILLPOND_TEST_POSTGRES_URL if that is set, else one that is started when it is
// first needed and ends by itself some time after the last test. The role may create
// databases; on a server of ours it is a superuser.
func Postgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	return openPostgres(tb, sharedPostgres)
}

// VolatilePostgres is [Postgres] for packages with many commits: a server that does not
// wait for the disk, and loses in a crash of the machine what it has committed. Tests do
// not crash machines, and kill servers of their own.
func VolatilePostgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	return openPostgres(tb, volatilePostgres)
}

func openPostgres(tb testing.TB, server *shared.Server) *PostgresServer {
	tb.Helper()
	if url := os.Getenv(postgres.URLVariable); url != "" {
		return &PostgresServer{url: url}
	}
	// Here, because what is wrong is easier to read than from the supervisor's log.
	if err := postgres.Install(tb.Context()); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	// Not the test's context: the next test uses the server as well.
	url, err := server.Open(context.Background())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return &PostgresServer{url: url}
}

// URL returns the address of the server's maintenance database.
func (s *PostgresServer) URL() string { return s.url }

// NewDatabase creates an empty database, which is dropped when the test ends, and
// returns its address.
func (s *PostgresServer) NewDatabase(tb testing.TB) string {
	tb.Helper()
	url, err := postgres.CreateDatabase(tb.Context(), s.url)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := postgres.DropDatabase(ctx, s.url, url); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return url
}

// PrivatePostgresServer is a server of one test, which may do to it what it wants.
type PrivatePostgresServer struct{ *postgres.Server }

// Option changes a private server.
type Option func(*postgres.Config)

// WithSettings sets parameters of postgresql.conf, such as
// default_transaction_read_only.
func WithSettings(settings map[string]string) Option {
	return func(c *postgres.Config) { c.Settings = settings }
}

// PrivatePostgres starts a server of its own for this test, also when
// MILLPOND_TEST_POSTGRES_URL is set, and removes it when the test ends. If the test
// has failed, the end of the server's log is shown.
func PrivatePostgres(tb testing.TB, options ...Option) *PrivatePostgresServer {
	tb.Helper()
	var config postgres.Config
	for _, option := range options {
		option(&config)
	}
	server, err := postgres.Start(tb.Context(), config)
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
	return &PrivatePostgresServer{server}
}

// NewDatabase creates an empty database and returns its address. It goes with the
// server.
func (s *PrivatePostgresServer) NewDatabase(tb testing.TB) string {
	tb.Helper()
	url, err := s.Server.NewDatabase(tb.Context())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return url
}
