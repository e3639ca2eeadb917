package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

const (
	loopback     = "127.0.0.1"
	readyTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
	pollInterval = 20 * time.Millisecond
)

// Server is a private server with its own data directory and port. It keeps both
// over Kill, Stop and Start. Its methods may be called by several goroutines; Kill,
// Stop, Start, Restart and Close wait for each other.
//
// The server ends with this process, however that ends (Linux only).
type Server struct {
	programs programs
	config   Config
	dir      *host.Dir
	port     int

	mu      sync.Mutex // serializes changes of state
	current sync.Mutex // guards process for readers, never held for long
	process *host.Process
	closed  bool
}

// Start creates a server and waits until it answers, at most 60 seconds; it fails at
// once, with the end of the server's log, when the server dies. A product that is not
// on this machine is installed first. ctx bounds the start only. The caller must call
// Close.
func Start(ctx context.Context, config Config) (*Server, error) {
	config.Product = cmp.Or(config.Product, MariaDB)
	found, err := find(ctx, config.Product)
	if err != nil {
		return nil, err
	}
	dir, err := host.NewDir(ctx, string(config.Product))
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	s := &Server{programs: found, config: config, dir: dir}
	if err := s.create(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) create(ctx context.Context) error {
	initialize, args := s.programs.initialize(s.dataDir())
	if err := host.Run(ctx, initialize.command(s.dir.Path, args...)); err != nil {
		return fmt.Errorf("mysql: create the data directory: %w", err)
	}
	for attempt := 0; ; attempt++ {
		var err error
		if s.port, err = host.FreePort(); err != nil {
			return fmt.Errorf("mysql: %w", err)
		}
		// Only a port that was taken between the choice and the start is worth
		// another attempt.
		if err = s.launch(ctx); !errors.Is(err, errPortTaken) || attempt == 5 {
			return err
		}
	}
}

func (s *Server) command() host.Command {
	args := append([]string{
		"--no-defaults",
		"--datadir=" + s.dataDir(),
		"--bind-address=" + loopback,
		"--port=" + strconv.Itoa(s.port),
		"--socket=server.sock", // in the data directory; a whole path might be too long for a socket
		"--pid-file=" + filepath.Join(s.dir.Path, "server.pid"),
	}, asRoot()...)
	command := s.programs.server.command(s.dir.Path, append(args, s.config.options()...)...)
	command.Log = s.LogFile()
	return command
}

func (s *Server) dataDir() string { return filepath.Join(s.dir.Path, "data") }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.dir.Path, "server.log") }

// Product returns whose server it is.
func (s *Server) Product() Product { return s.config.Product }

// URL returns the address of the superuser, in no database.
func (s *Server) URL() string { return s.DatabaseURL("") }

// DatabaseURL returns the address of the superuser in a database.
func (s *Server) DatabaseURL(database string) string {
	u := url.URL{
		Scheme: "mysql",
		User:   url.User(Superuser),
		Host:   net.JoinHostPort(loopback, strconv.Itoa(s.port)),
		Path:   "/" + database,
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
	db, err := Open(s.URL())
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		err := s.answers(ctx, db)
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
func (s *Server) answers(ctx context.Context, db *sql.DB) error {
	var dir string
	if err := db.QueryRowContext(ctx, "SELECT @@datadir").Scan(&dir); err != nil {
		return err
	}
	if strings.TrimSuffix(dir, "/") != s.dataDir() {
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
