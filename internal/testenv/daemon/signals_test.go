package daemon_test

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

// startWithWorkers starts a server with workers, and returns the ids of all its processes.
func startWithWorkers(t *testing.T, p daemon.Program) (*daemon.Server, []int) {
	t.Helper()
	command := p.Command
	p.Command = func(dir, address string) host.Command {
		c := command(dir, address)
		c.Env = append(c.Env, workersVariable+"=3")
		return c
	}
	p.Workers = true
	server, err := daemon.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	pids, err := server.PIDs()
	if err != nil || len(pids) != 4 || pids[0] != server.PID() {
		t.Fatalf("the processes are %v (%v), the server's own is %d", pids, err, server.PID())
	}
	return server, pids
}

// A paused server stands still when Pause returns, with all who work for it.
func TestPause(t *testing.T) {
	server, pids := startWithWorkers(t, program())
	for range 20 {
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		if !all(pids, host.Stopped) {
			t.Fatal("somebody goes on")
		}
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "all go on", func() bool { return !slices.ContainsFunc(pids, host.Stopped) })
	}
}

// Nobody who worked for a server outlives it, also if it is paused.
func TestKillTakesTheWorkersAlong(t *testing.T) {
	server, pids := startWithWorkers(t, program())
	if err := errors.Join(server.Pause(), server.Kill()); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(pids, host.Alive) {
		t.Error("somebody goes on")
	}
	for name, err := range map[string]error{"Kill": server.Kill(), "Pause": server.Pause(), "Resume": server.Resume()} {
		if !errors.Is(err, daemon.ErrNotRunning) {
			t.Errorf("%s of a server that is gone: %v", name, err)
		}
	}
	if server.PID() != 0 {
		t.Errorf("a server that is gone has the process %d", server.PID())
	}
}

// Stop and Close use the signals that the server wants.
func TestSignals(t *testing.T) {
	p := program()
	p.StopSignal, p.QuitSignal = syscall.SIGINT, syscall.SIGQUIT
	server, _ := startWithWorkers(t, p)
	ended := func(name string, end func() error) {
		t.Helper()
		log, err := os.Open(server.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 100)
		if n, _ := log.Read(said); string(said[:n]) != name+"\n" {
			t.Errorf("it ended with %q, want %s", said[:n], name)
		}
		if err := os.Truncate(server.LogFile(), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	ended("interrupt", func() error { return server.Stop(t.Context()) })
	if err := errors.Join(server.Start(t.Context()), server.Pause()); err != nil {
		t.Fatal(err)
	}
	ended("quit", server.Close)
}

func all(pids []int, holds func(int) bool) bool {
	return !slices.ContainsFunc(pids, func(pid int) bool { return !holds(pid) })
}
