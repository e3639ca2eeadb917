// Package moto starts private moto servers for tests: the interfaces of SQS, SNS and many
// more services of AWS. It keeps everything in memory, and is the second opinion beside
// package elasticmq: it takes a receipt handle whose message somebody else has received
// since, as SQS documents.
package moto

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Version is the version of the server.
const Version = "5.2.5"

// Region is a region that the server knows. It knows all of AWS's, each with its own
// queues and topics.
const Region = "us-east-1"

// Install makes sure that a server can be started: it installs Python and pip where they
// are missing and can be installed, and fetches the server from PyPI, once for this user.
// Start does the same; this is for who wants its error earlier.
func Install(ctx context.Context) error {
	_, _, err := installed(ctx)
	return err
}

// installed returns the program that runs Python and the directory of its modules.
func installed(ctx context.Context) (python, modules string, err error) {
	if python, err = exec.LookPath("python3"); err != nil {
		python, err = install(ctx, "python3")
	}
	if err == nil {
		modules, err = modulesFor(ctx, python)
	}
	if err != nil {
		return "", "", fmt.Errorf("moto: %w", err)
	}
	return python, modules, nil
}

// modulesFor returns the directory of the modules. Some of them are compiled for one
// version of Python.
func modulesFor(ctx context.Context, python string) (string, error) {
	tag, err := exec.CommandContext(ctx, python, "-c", "import sys; print(sys.implementation.cache_tag)").Output() // #nosec G204 -- from PATH
	if err != nil {
		return "", fmt.Errorf("ask python3 for its version: %w", err)
	}
	name := "moto-" + Version + "-" + strings.TrimSpace(string(tag))
	return host.Cached(ctx, name, complete, func(ctx context.Context, dir string) error { return fetch(ctx, python, dir) })
}

func install(ctx context.Context, debian string) (string, error) {
	if err := host.Apt(ctx, "", debian); err != nil {
		if errors.Is(err, host.ErrCannotInstall) {
			return "", errors.New("Python 3.9 or later with pip is missing: install it (Debian, Ubuntu: sudo apt-get install python3 python3-pip; macOS: brew install python)")
		}
		return "", err
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("the package %s is installed, but python3 is not in PATH", debian)
	}
	return python, nil
}

func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "moto-"+Version+".dist-info", "RECORD"))
	return err == nil
}

// fetch puts the server's modules into a directory of their own, apart from all others of
// this machine. The extra named server of the package would bring three times as much, for
// services that no test uses.
func fetch(ctx context.Context, python, dir string) error {
	if exec.CommandContext(ctx, python, "-m", "pip", "--version").Run() != nil { // #nosec G204 -- from PATH
		if _, err := install(ctx, "python3-pip"); err != nil {
			return err
		}
	}
	err := host.Run(ctx, host.Command{
		Path: python, Dir: filepath.Dir(dir), Env: os.Environ(),
		Args: []string{
			"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-conflicts",
			"--target", dir, "moto==" + Version, "flask", "flask-cors",
		},
	})
	if err != nil {
		return fmt.Errorf("fetch the server from PyPI: %w", err)
	}
	return nil
}

// Server is a private server; see daemon.Server. It forgets everything when it ends.
type Server struct{ *daemon.Server }

// Start starts a server and waits until it answers, at most 90 seconds. ctx bounds the
// start only. The caller must call Close.
func Start(ctx context.Context) (*Server, error) {
	python, modules, err := installed(ctx)
	if err != nil {
		return nil, err
	}
	server, err := daemon.Start(ctx, daemon.Program{
		Name: "moto",
		Command: func(_, address string) host.Command {
			bindHost, port, _ := net.SplitHostPort(address) // which daemon has joined
			return host.Command{
				Path: python,
				Args: []string{"-m", "moto.server", "-H", bindHost, "-p", port},
				// HOME is for pyenv and the like, whose python3 is a script.
				Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PYTHONPATH=" + modules, "LC_ALL=C.UTF-8", "TZ=UTC"},
			}
		},
		Ready: daemon.AnswersHTTP("/moto-api/"),
		InUse: []string{"Address already in use"},
	})
	if err != nil {
		return nil, err
	}
	return &Server{server}, nil
}

// URL returns the address that clients are given as their endpoint.
func (s *Server) URL() string { return "http://" + s.Address() }
