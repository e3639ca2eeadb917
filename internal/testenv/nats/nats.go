// Package nats starts private NATS servers with JetStream for tests.
package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

// URLVariable points tests at another server, such as nats://127.0.0.1:4222.
const URLVariable = "MILLPOND_TEST_NATS_URL"

// Version is the version of the server, and of the program around it in the module server
// below this package, which is built where it is needed: it is no requirement of millpond.
const Version = "2.15.2-2"

const (
	binary  = "nats-server"
	pkgPath = "github.com/millpond-go/millpond/internal/testenv/nats"
)

// Install makes sure that a server can be started: it builds it with Go, once for this
// user. Start does the same; this is for who wants its error earlier.
func Install(ctx context.Context) error {
	_, err := installed(ctx)
	return err
}

func installed(ctx context.Context) (path string, err error) {
	dir, err := host.Cached(ctx, "nats-"+Version, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, binary))
		return err == nil
	}, build)
	if err != nil {
		return "", fmt.Errorf("nats: %w (or set %s to a server with JetStream, which is enough for all tests that do not kill theirs)", err, URLVariable)
	}
	return filepath.Join(dir, binary), nil
}

func build(ctx context.Context, dir string) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return errors.New("the Go tool is not in PATH: the test server is built from source with it")
	}
	here, err := exec.CommandContext(ctx, goTool, "list", "-f", "{{.Dir}}", pkgPath).Output() // #nosec G204 -- from PATH
	if err != nil {
		return fmt.Errorf("find the server's source: %w", err)
	}
	err = host.Run(ctx, host.Command{
		Path: goTool, Dir: filepath.Join(strings.TrimSpace(string(here)), "server"), Env: append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0"),
		Args: []string{"build", "-o", filepath.Join(dir, binary), "."},
	})
	if err != nil {
		return fmt.Errorf("build the server: %w", err)
	}
	return nil
}

// Server is a private server; see daemon.Server.
type Server struct{ *daemon.Server }

// Start starts a server and waits until it answers, at most 90 seconds. Its streams survive
// a kill, since it syncs each message before it answers. ctx bounds the start only. The
// caller must call Close.
func Start(ctx context.Context) (*Server, error) { return start(ctx, true) }

// StartUnsynced is Start, but that the server syncs by and by, as it does by default. It is
// several times as fast.
func StartUnsynced(ctx context.Context) (*Server, error) { return start(ctx, false) }

func start(ctx context.Context, sync bool) (*Server, error) {
	path, err := installed(ctx)
	if err != nil {
		return nil, err
	}
	server, err := daemon.Start(ctx, daemon.Program{
		Name: "nats",
		Command: func(dir, address string) host.Command {
			bindHost, port, _ := net.SplitHostPort(address) // which daemon has joined
			return host.Command{Path: path, Args: []string{"-host", bindHost, "-port", port, "-dir", filepath.Join(dir, "data"), "-sync=" + strconv.FormatBool(sync)}}
		},
		Ready:      daemon.Greets("INFO "),
		InUse:      []string{"address already in use"},
		StopSignal: syscall.SIGTERM,
	})
	if err != nil {
		return nil, err
	}
	return &Server{server}, nil
}

// URL returns the address that clients are given.
func (s *Server) URL() string { return "nats://" + s.Address() }
