// Package tidb builds and starts a TiDB server for tests, with its data in the server itself
// (unistore): no TiKV. It is for a soak: the build takes a quarter of an hour.
package tidb

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

const (
	// Version of the module, of the line of TiDB 8.5.
	Version = "v1.1.0-beta.0.20251126154744-e4e814fdc0af"

	module = "github.com/pingcap/tidb"
	parser = module + "/pkg/parser"
	binary = "tidb-server"
)

// installed builds the server, once for this user.
func installed(ctx context.Context) (path string, err error) {
	dir, err := host.Cached(ctx, "tidb-"+Version, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, binary))
		return err == nil
	}, build)
	if err != nil {
		return "", fmt.Errorf("tidb: %w", err)
	}
	return filepath.Join(dir, binary), nil
}

// build makes a module of the server's own, with the server's requirements and sums, and with
// its parser as a module instead of a directory.
func build(ctx context.Context, dir string) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("the server is built from source: %w", err)
	}
	source, err := os.MkdirTemp("", "tidb-server-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(source)
	run := func(args ...string) error {
		return host.Run(ctx, host.Command{Path: goTool, Dir: source, Env: append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off"), Args: args})
	}
	if err := run("mod", "download", module+"@"+Version); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	find := exec.CommandContext(ctx, goTool, "list", "-m", "-f", "{{.Dir}}", module+"@"+Version) // #nosec G204 -- from PATH
	find.Dir, find.Env = os.TempDir(), append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	is, err := find.Output()
	if err != nil {
		return fmt.Errorf("find the source: %w", err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(is)), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(source, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"mod", "edit", "-module=tidbserver", "-replace=" + parser + "=" + parser + "@" + strings.Replace(Version, "v1.1.0-beta.0.", "v0.0.0-", 1), "-require=" + module + "@" + Version},
		{"build", "-o", filepath.Join(dir, binary), module + "/cmd/" + binary},
	} {
		if err := run(args...); err != nil {
			return fmt.Errorf("build: %w", err)
		}
	}
	return nil
}

// Server is a private server; see daemon.Server. A kill can lose what it has committed:
// unistore has some of it in memory alone.
type Server struct{ *daemon.Server }

// Start starts a server, after building it if there is none yet. ctx bounds both. The caller
// must call Close.
func Start(ctx context.Context) (*Server, error) {
	path, err := installed(ctx)
	if err != nil {
		return nil, err
	}
	server, err := daemon.Start(ctx, daemon.Program{
		Name: "tidb",
		Configure: func(dir, address string) error {
			_, port, _ := net.SplitHostPort(address) // which daemon has joined
			text := fmt.Sprintf("host = \"127.0.0.1\"\nport = %s\nstore = \"unistore\"\npath = %q\nsocket = \"\"\n[log]\nlevel = \"error\"\n[status]\nreport-status = false\n", port, filepath.Join(dir, "data"))
			return os.WriteFile(filepath.Join(dir, "tidb.toml"), []byte(text), 0o600)
		},
		Command: func(dir, _ string) host.Command {
			return host.Command{Path: path, Args: []string{"-config", filepath.Join(dir, "tidb.toml")}}
		},
		Ready:      daemon.Greets(""),
		InUse:      []string{"address already in use"},
		StopSignal: syscall.SIGTERM,
	})
	if err != nil {
		return nil, err
	}
	return &Server{server}, nil
}

// URL returns the address, in no database.
func (s *Server) URL() string { return "mysql://root@" + s.Address() + "/" }
