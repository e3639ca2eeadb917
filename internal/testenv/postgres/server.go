package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

const loopback = "127.0.0.1"

// Server is a private server with its own data directory and port; see daemon.Server.
// Stop does not wait for its clients. Kill, Pause and Resume mean all its backends too.
type Server struct {
	*daemon.Server

	postmaster *postmaster
}

// Start creates a server and waits until it answers, at most 90 seconds; it fails at
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
	p := &postmaster{bin: bin, account: account, config: config}
	server, err := daemon.Start(ctx, daemon.Program{
		Name:      "postgres",
		Configure: func(dir, _ string) error { return p.createData(ctx, dir) },
		Command:   p.run,
		Ready:     p.answers,
		// A backend that outlived its postmaster ends.
		InUse:      []string{"could not bind", "is still in use"},
		Workers:    true,
		StopSignal: syscall.SIGINT,
		QuitSignal: syscall.SIGQUIT, // SIGKILL would leave shared memory behind
	})
	if err != nil {
		return nil, err
	}
	return &Server{server, p}, nil
}

// URL returns the address of the superuser in the database postgres.
func (s *Server) URL() string { return s.DatabaseURL("postgres") }

// DatabaseURL returns the address of the superuser in a database.
func (s *Server) DatabaseURL(database string) string { return databaseURL(s.Address(), database) }

func databaseURL(address, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(Superuser), Host: address, Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// NewDatabase creates an empty database and returns its address. It goes with the
// server.
func (s *Server) NewDatabase(ctx context.Context) (string, error) {
	return CreateDatabase(ctx, s.URL())
}

// Follow makes s an asynchronous standby of another server, whose data it gets.
func (s *Server) Follow(ctx context.Context, primary *Server) error {
	return s.RestartAfter(ctx, func(string) error {
		p := s.postmaster
		if err := errors.Join(os.RemoveAll(p.data), os.Mkdir(p.data, 0o700), p.account.Chown(p.data)); err != nil {
			return err
		}
		copying := p.command("pg_basebackup", "-D", p.data, "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", primary.URL())
		copying.Dir = s.Dir()
		return host.Run(ctx, copying)
	})
}

// postmaster is how a server is run.
type postmaster struct {
	bin     string
	account *host.Account
	config  Config
	data    string // directory; "" before it is made
}

// createData makes the data directory, unless it is there already: it is the same for
// every port.
func (p *postmaster) createData(ctx context.Context, dir string) error {
	if p.data != "" {
		return nil
	}
	data := filepath.Join(dir, "data")
	err := host.FromTemplate(ctx, "data-postgres", data, func(data string) host.Command {
		return p.command("initdb", "-D", data, "-U", Superuser, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	})
	if err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	conf, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(p.config.conf())
	p.data = data
	return errors.Join(err, conf.Close())
}

func (p *postmaster) run(_, address string) host.Command {
	_, port, _ := net.SplitHostPort(address) // which daemon has joined
	return p.command("postgres", "-D", p.data, "-p", port)
}

func (p *postmaster) command(name string, args ...string) host.Command {
	return host.Command{
		Path:    filepath.Join(p.bin, name),
		Args:    args,
		Env:     []string{"PATH=" + p.bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"},
		Account: p.account,
		// The immediate shutdown takes the backends along; SIGKILL would leave a
		// busy one behind.
		OrphanSignal: syscall.SIGQUIT,
	}
}

// answers returns nil if this very server lets clients in: another may have been given
// the same port a moment earlier.
func (p *postmaster) answers(ctx context.Context, address string) error {
	conn, err := pgx.Connect(ctx, databaseURL(address, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var data string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&data); err != nil {
		return err
	}
	if data != p.data {
		return errors.New("another server answers")
	}
	return nil
}
