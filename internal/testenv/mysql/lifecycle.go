package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

var (
	// ErrRunning: the server is up already.
	ErrRunning = errors.New("mysql: server is running")
	// ErrNotRunning: the server is not up, or has died.
	ErrNotRunning = errors.New("mysql: server is not running")
	// ErrClosed: the server and its data are gone.
	ErrClosed = errors.New("mysql: server is closed")

	errPortTaken = errors.New("the port is taken")
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
		if !errors.Is(err, errPortTaken) { // by an outgoing connection, which ends
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
	process, err := host.StartProcess(s.command())
	if err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	s.setProcess(process)
	err = s.waitReady(ctx, process)
	if err == nil {
		return nil
	}
	log := host.Tail(s.LogFile(), logged)
	if strings.Contains(log, "Address already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	err = fmt.Errorf("mysql: start %s: %w%s", s.config.Product, err, log)
	if killErr := s.kill(); !errors.Is(killErr, ErrNotRunning) {
		err = errors.Join(err, killErr)
	}
	return err
}

// Stop shuts the server down cleanly; it disconnects its clients.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(ctx, syscall.SIGTERM)
}

// Kill ends the server with SIGKILL, and returns when it is gone. What was committed is
// in the data; nothing was shut down.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error { return s.end(context.Background(), syscall.SIGKILL) }

// end signals the process and waits until it is gone: a successor would find its locks.
func (s *Server) end(ctx context.Context, sig syscall.Signal) error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := process.Signal(sig); err != nil {
		return fmt.Errorf("mysql: stop: %w", err)
	}
	if err := process.Wait(ctx); err != nil {
		return fmt.Errorf("mysql: stop: %w%s", err, host.Tail(s.LogFile(), 0))
	}
	return nil
}

// Restart stops the server if it runs, and starts it.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.end(ctx, syscall.SIGTERM); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	return s.start(ctx)
}

// Pause stops the process in its tracks until Resume: a server that hangs. It must be
// resumed before Stop, not before Kill and Close.
func (s *Server) Pause() error { return s.send(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return s.send(syscall.SIGCONT) }

func (s *Server) send(sig syscall.Signal) error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	if err := process.Signal(sig); err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	return nil
}

// Close ends the server at once and removes its data. Calling it again does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.kill()
	if errors.Is(err, ErrNotRunning) {
		err = nil
	}
	if removeErr := s.dir.Remove(); removeErr != nil {
		err = errors.Join(err, fmt.Errorf("mysql: %w", removeErr))
	}
	return err
}

// PID returns the id of the server's process, 0 if it is not running.
func (s *Server) PID() int {
	if process := s.running(); process != nil {
		return process.PID()
	}
	return 0
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
