package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

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

// Kill ends the broker with SIGKILL, and returns when it is gone. Before that it gives
// quorum queues that are younger than about a second the time to be written: a broker that
// is killed earlier comes back with a queue that never finds its leader, whatever it has
// confirmed.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() != nil {
		s.awaitQueues()
	}
	return s.kill()
}

// awaitQueues waits until every queue's log is listed where the node looks for them after
// a start. A node that hangs lists none, so there is an end to that.
func (s *Server) awaitQueues() {
	const most = 5 * time.Second
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for deadline := time.Now().Add(most); time.Now().Before(deadline) && !s.queuesListed(); {
		<-ticker.C
	}
}

func (s *Server) queuesListed() bool {
	lists, _ := filepath.Glob(s.file("data/*/quorum/*/names.dets"))
	for _, list := range lists {
		listed, err := os.ReadFile(list) // #nosec G304 -- the broker's
		if err != nil {
			continue
		}
		configurations, _ := filepath.Glob(filepath.Join(filepath.Dir(list), "*", "config"))
		for _, path := range configurations {
			if !bytes.Contains(listed, []byte(filepath.Base(filepath.Dir(path)))) {
				return false
			}
		}
	}
	return true
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
