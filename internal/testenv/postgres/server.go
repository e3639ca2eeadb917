package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

const (
	loopback     = "127.0.0.1"
	readyTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	pollInterval = 10 * time.Millisecond
)

// Server is a private server with its own data directory and port. It keeps both
// over Kill, Stop and Start. Its methods may be called by several goroutines; Kill,
// Stop, Start, Restart and Close wait for each other.
//
// The server ends with this process, however that ends (Linux only; elsewhere, a
// little later than it).
type Server struct {
	bin     string
	dir     *host.Dir
	account *host.Account
	port    int

	mu      sync.Mutex // serializes changes of state
	process *host.Process
	current sync.Mutex // guards process for readers, never held for long
	closed  bool
}

// Start creates a server and waits until it answers, at most 60 seconds; it fails at
// once, with the end of the server's log, when the server dies. Where no PostgreSQL
// is installed it installs the distribution's. ctx bounds the start only. The caller
// must call Close.
func Start(ctx context.Context, config Config) (*Server, error) {
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	account, err := host.Unprivileged("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	dir, err := host.NewDir(ctx, "postgres")
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s := &Server{bin: bin, dir: dir, account: account}
	if err := s.create(ctx, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) create(ctx context.Context, config Config) error {
	if err := os.Mkdir(s.dataDir(), 0o700); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if err := s.account.Chown(s.dataDir()); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	initdb := s.command("initdb", "-D", s.dataDir(), "-U", Superuser, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	if err := host.Run(ctx, initdb); err != nil {
		return fmt.Errorf("postgres: create the data directory: %w", err)
	}
	conf, err := os.OpenFile(filepath.Join(s.dataDir(), "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	_, err = conf.WriteString(config.conf())
	if err := errors.Join(err, conf.Close()); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	for attempt := 0; ; attempt++ {
		if s.port, err = host.FreePort(); err != nil {
			return fmt.Errorf("postgres: %w", err)
		}
		// Only a port that was taken between the choice and the start is worth
		// another attempt.
		if err = s.launch(ctx); !errors.Is(err, errPortTaken) || attempt == 5 {
			return err
		}
	}
}

func (s *Server) dataDir() string { return filepath.Join(s.dir.Path, "data") }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.dir.Path, "postgres.log") }

func (s *Server) command(name string, args ...string) host.Command {
	return host.Command{
		Path:    filepath.Join(s.bin, name),
		Args:    args,
		Dir:     s.dir.Path,
		Env:     []string{"PATH=" + s.bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"},
		Account: s.account,
		Log:     s.LogFile(),
		// The immediate shutdown takes the backends along; SIGKILL would leave a
		// busy one behind.
		OrphanSignal: syscall.SIGQUIT,
	}
}

// URL returns the address of the superuser in the database postgres.
func (s *Server) URL() string { return s.DatabaseURL("postgres") }

// DatabaseURL returns the address of the superuser in a database.
func (s *Server) DatabaseURL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(Superuser),
		Host:     net.JoinHostPort(loopback, strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// NewDatabase creates an empty database and returns its address. It goes with the
// server.
func (s *Server) NewDatabase(ctx context.Context) (string, error) {
	return CreateDatabase(ctx, s.URL())
}

// waitReady waits until the server lets clients in.
func (s *Server) waitReady(ctx context.Context, process *host.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("it was not ready within %v", readyTimeout))
	defer cancel()
	for {
		err := s.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("the server ended (%w)", orNil(process.Err()))
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// answers returns nil if this very server lets clients in: another may have been given
// the same port a moment earlier.
func (s *Server) answers(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var dir string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&dir); err != nil {
		return err
	}
	if dir != s.dataDir() {
		return errors.New("another server answers")
	}
	return nil
}

func orNil(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
