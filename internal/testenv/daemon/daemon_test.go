package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

const (
	// serveVariable makes the test program a server that answers nothing and takes every
	// connection, at the address that it names.
	serveVariable = "MILLPOND_TEST_SERVE"
	// workersVariable makes it start so many processes before.
	workersVariable = "MILLPOND_TEST_WORKERS"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(serveVariable); address != "" {
		if err := serve(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serve ends when it gets a signal, and says which.
func serve(address string) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	workers, _ := strconv.Atoi(os.Getenv(workersVariable))
	for range workers {
		worker := exec.Command("/bin/sleep", "1000")
		worker.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // else the kernel may end it with us
		if err := worker.Start(); err != nil {
			return err
		}
		defer func() { _ = worker.Process.Kill() }()
	}
	if _, err := net.Listen("tcp", address); err != nil {
		return err
	}
	fmt.Println(<-signals)
	return nil
}

func program() daemon.Program {
	return daemon.Program{
		Name: "server",
		Command: func(_, address string) host.Command {
			return host.Command{Path: os.Args[0], Env: []string{serveVariable + "=" + address}}
		},
		Ready: func(ctx context.Context, address string) error {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		},
		InUse: []string{"address already in use"},
	}
}

func TestServerKeepsItsPlace(t *testing.T) {
	server, err := daemon.Start(t.Context(), program())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	address, kept := server.Address(), filepath.Join(server.Dir(), "kept")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	done := server.Done()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	<-server.Done() // of one that does not run
	if err := errors.Join(server.Start(t.Context()), server.Restart(t.Context()), server.Stop(t.Context()), server.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if server.Address() != address {
		t.Errorf("it moved from %s to %s", address, server.Address())
	}
	if err := server.RestartAfter(t.Context(), func(dir string) error { return os.Remove(filepath.Join(dir, "kept")) }); err != nil {
		t.Errorf("its files: %v", err)
	}
	if err := errors.Join(server.Close(), server.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(server.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory is still there")
	}
	for name, err := range map[string]error{"Start": server.Start(t.Context()), "Restart": server.Restart(t.Context())} {
		if !errors.Is(err, daemon.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}

func TestStartFailsAtOnceWithTheLog(t *testing.T) {
	p, began := program(), time.Now()
	p.Command = func(string, string) host.Command {
		return host.Command{Path: "/bin/sh", Args: []string{"-c", "echo what is wrong; exit 3"}}
	}
	_, err := daemon.Start(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "server: start: the server ended (exit status 3)") || !strings.Contains(err.Error(), "what is wrong") {
		t.Errorf("the error is %v", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the failure was noticed after %v", took)
	}
}

// Another process may take the port between its choice and the start, or while the server
// is down.
func TestTakenPort(t *testing.T) {
	p := program()
	var blocked net.Listener
	p.Configure = func(_, address string) (err error) {
		if blocked == nil {
			blocked, err = net.Listen("tcp", address)
		}
		return err
	}
	server, err := daemon.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if server.Address() == blocked.Addr().String() {
		t.Errorf("the server is at %s, which is taken", server.Address())
	}
	_ = blocked.Close()

	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if blocked, err = net.Listen("tcp", server.Address()); err != nil {
		t.Fatal(err)
	}
	free := time.AfterFunc(300*time.Millisecond, func() { _ = blocked.Close() })
	defer free.Stop()
	if err := server.Start(t.Context()); err != nil {
		t.Errorf("start with a port that becomes free: %v", err)
	}
}
