package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Stop shuts the broker down cleanly.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return s.end(ctx, syscall.SIGTERM)
}

// Kill ends the broker with SIGKILL, and returns when it is gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.end(ctx, syscall.SIGKILL)
}

// end ends the process with a signal and waits for that.
func (s *Server) end(ctx context.Context, sig syscall.Signal) error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	if err := process.Signal(sig); err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	if err := process.Wait(ctx); err != nil {
		return fmt.Errorf("rabbitmq: stop: %w%s", err, host.Tail(s.LogFile(), 0))
	}
	return nil
}

// Restart stops the broker if it runs, and starts it.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	return s.Start(ctx)
}

// Pause stops the process in its tracks until Resume: a broker that hangs.
func (s *Server) Pause() error { return s.send(syscall.SIGSTOP) }

// Resume lets a paused broker go on.
func (s *Server) Resume() error { return s.send(syscall.SIGCONT) }

func (s *Server) send(sig syscall.Signal) error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	if err := process.Signal(sig); err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	return nil
}

// Close ends the broker at once and removes its data. Calling it again does nothing.
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
	err = errors.Join(err, s.endNameService())
	if removeErr := s.dir.Remove(); removeErr != nil {
		err = errors.Join(err, fmt.Errorf("rabbitmq: %w", removeErr))
	}
	return err
}

// PID returns the id of the node's process; 0 if none runs.
func (s *Server) PID() int {
	if process := s.running(); process != nil {
		return process.PID()
	}
	return 0
}

// Done returns a channel that is closed when the broker that runs now has ended; closed
// already if none runs.
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
