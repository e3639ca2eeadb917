package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

var (
	// ErrRunning: the server is up already.
	ErrRunning = errors.New("postgres: server is running")
	// ErrNotRunning: the server is not up, or has died.
	ErrNotRunning = errors.New("postgres: server is not running")
	// ErrClosed: the server and its data are gone.
	ErrClosed = errors.New("postgres: server is closed")

	errPortTaken  = errors.New("the port is taken")
	errStillInUse = errors.New("a backend of the last postmaster is still there")
)

// Start starts a server that was stopped or killed, on the same data and the same
// port, and waits until it has recovered and answers.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start(ctx)
}

func (s *Server) start(ctx context.Context) error {
	switch {
	case s.closed:
		return ErrClosed
	case s.running() != nil:
		return ErrRunning
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := s.launch(ctx)
		// Both pass: a backend that outlived the last postmaster ends, and so does
		// an outgoing connection that was given our port.
		if !errors.Is(err, errPortTaken) && !errors.Is(err, errStillInUse) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * pollInterval):
		}
	}
}

// launch starts the process, once.
func (s *Server) launch(ctx context.Context) error {
	var logged int64
	if info, err := os.Stat(s.LogFile()); err == nil {
		logged = info.Size()
	}
	process, err := host.StartProcess(s.command("postgres", "-D", s.dataDir(), "-p", strconv.Itoa(s.port)))
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	s.setProcess(process)
	err = s.waitReady(ctx, process)
	if err == nil {
		return nil
	}
	log := host.Tail(s.LogFile(), logged)
	switch {
	case strings.Contains(log, "could not bind"):
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	case strings.Contains(log, "is still in use"):
		err = fmt.Errorf("%w: %w", errStillInUse, err)
	}
	err = fmt.Errorf("postgres: start: %w%s", err, log)
	if killErr := s.kill(); !errors.Is(killErr, ErrNotRunning) {
		err = errors.Join(err, killErr)
	}
	return err
}

// Stop shuts the server down cleanly, without waiting for its clients.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(ctx, syscall.SIGINT)
}

func (s *Server) stop(ctx context.Context, sig syscall.Signal) error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := process.Signal(sig); err != nil {
		return fmt.Errorf("postgres: stop: %w", err)
	}
	if err := process.Wait(ctx); err != nil {
		return fmt.Errorf("postgres: stop: %w%s", err, host.Tail(s.LogFile(), 0))
	}
	return nil
}

// Kill ends the server and all its backends with SIGKILL, and returns when they are
// gone. What was committed is in the data; nothing was shut down.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	// A backend that is busy does not notice the death of the postmaster: it would
	// go on, and keep the next server from starting. Backends have sessions of their
	// own, so there is no group to signal. The stopped postmaster forks no more.
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("postgres: kill: %w", err)
	}
	backends, listErr := host.Children(process.PID())
	if err := process.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("postgres: kill: %w", err)
	}
	for _, pid := range backends {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := process.Wait(ctx); err != nil {
		return fmt.Errorf("postgres: kill: %w", err)
	}
	for _, pid := range backends {
		for host.Alive(pid) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("postgres: kill: backend %d does not end", pid)
			case <-time.After(pollInterval):
			}
		}
	}
	if listErr != nil {
		return fmt.Errorf("postgres: kill: %w", listErr)
	}
	return nil
}

// Restart stops the server if it runs, and starts it.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(ctx, syscall.SIGINT); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	return s.start(ctx)
}

// Close ends the server at once and removes its data. Calling it again does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.stop(context.Background(), syscall.SIGQUIT)
	if err != nil && !errors.Is(err, ErrNotRunning) {
		err = s.kill()
	} else {
		err = nil
	}
	if removeErr := s.dir.Remove(); removeErr != nil {
		err = errors.Join(err, fmt.Errorf("postgres: %w", removeErr))
	}
	return err
}

// PID returns the id of the postmaster, 0 if the server is not running.
func (s *Server) PID() int {
	if process := s.running(); process != nil {
		return process.PID()
	}
	return 0
}

// PIDs returns the ids of all processes of the server, the postmaster first: backends
// and background processes come and go. It is ErrNotRunning if there are none.
func (s *Server) PIDs() ([]int, error) {
	process := s.running()
	if process == nil {
		return nil, ErrNotRunning
	}
	children, err := host.Children(process.PID())
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return append([]int{process.PID()}, children...), nil
}

// Done returns a channel that is closed when the server that runs now has ended;
// closed already if none runs.
func (s *Server) Done() <-chan struct{} {
	if process := s.running(); process != nil {
		return process.Done()
	}
	done := make(chan struct{})
	close(done)
	return done
}

// running returns the living process, or nil.
func (s *Server) running() *host.Process {
	s.current.Lock()
	defer s.current.Unlock()
	if s.process == nil {
		return nil
	}
	select {
	case <-s.process.Done():
		return nil
	default:
		return s.process
	}
}

func (s *Server) setProcess(p *host.Process) {
	s.current.Lock()
	defer s.current.Unlock()
	s.process = p
}
