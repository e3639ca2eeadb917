package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Server is a private server with its own data directory and port; see daemon.Server.
type Server struct {
	*daemon.Server

	product Product
}

// Start creates a server and waits until it answers, at most 90 seconds; it fails at
// once, with the end of the server's log, when the server dies. A product that is not
// on this machine is installed first. ctx bounds the start only. The caller must call
// Close.
func Start(ctx context.Context, config Config) (*Server, error) {
	config.Product = cmp.Or(config.Product, MariaDB)
	found, err := find(ctx, config.Product)
	if err != nil {
		return nil, err
	}
	server, err := daemon.Start(ctx, daemon.Program{
		Name:      string(config.Product),
		Configure: func(dir, _ string) error { return createData(ctx, config.Product, found, dir) },
		Command: func(dir, address string) host.Command {
			return with(found.server, slices.Concat(place(dir, address), found.options, config.options())...)
		},
		Ready: answers,
		InUse: []string{"Address already in use"},
	})
	if err != nil {
		return nil, err
	}
	return &Server{Server: server, product: config.Product}, nil
}

// createData makes the data directory, unless it is there already: it is the same for
// every port.
func createData(ctx context.Context, product Product, found programs, dir string) error {
	if _, err := os.Stat(dataDir(dir)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := host.FromTemplate(ctx, "data-"+string(product), dataDir(dir), found.initialize); err != nil {
		return fmt.Errorf("create the data directory: %w", err)
	}
	// By which replication tells servers apart: this one gets its own when it starts.
	if err := os.Remove(filepath.Join(dataDir(dir), "auto.cnf")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func dataDir(dir string) string { return filepath.Join(dir, "data") }

// place returns the options that keep a server to its own directory, address and port.
func place(dir, address string) []string {
	hostname, port, _ := net.SplitHostPort(address)
	return append([]string{
		"--no-defaults", // must be the first
		"--datadir=" + dataDir(dir),
		"--tmpdir=" + dir, // a server that starts removes the temporary tables that it finds
		"--bind-address=" + hostname,
		"--port=" + port,
		"--socket=server.sock", // in the data directory; a whole path might be too long for a socket
		"--pid-file=server.pid",
	}, asRoot()...)
}

// answers returns nil if a server lets clients in.
func answers(ctx context.Context, address string) error {
	db, err := Open(serverURL(address))
	if err != nil {
		return err
	}
	return errors.Join(db.PingContext(ctx), db.Close())
}

// Product returns whose server it is.
func (s *Server) Product() Product { return s.product }

// URL returns the address of the superuser, in no database.
func (s *Server) URL() string { return serverURL(s.Address()) }

// NewDatabase creates an empty database and returns its address. It goes with the
// server.
func (s *Server) NewDatabase(ctx context.Context) (string, error) {
	return CreateDatabase(ctx, s.URL())
}

func serverURL(address string) string {
	u := url.URL{Scheme: "mysql", User: url.User(Superuser), Host: address, Path: "/"}
	return u.String()
}
