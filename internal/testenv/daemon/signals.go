package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Stop shuts the server down cleanly.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(ctx)
}

func (s *Server) stop(ctx context.Context) error {
	return s.end(ctx, cmp.Or(s.program.StopSignal, syscall.SIGTERM))
}

// end ends the process with a signal and waits for that.
func (s *Server) end(ctx context.Context, sig syscall.Signal) error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := process.Signal(sig); err != nil {
		return s.errorf("%w", err)
	}
	if err := process.Wait(ctx); err != nil {
		return s.errorf("stop: %w%s", err, host.Tail(s.LogFile(), 0))
	}
	return nil
}

// Kill ends the server with SIGKILL, and returns when it is gone: nothing was shut down.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	if !s.program.Workers {
		return s.end(context.Background(), syscall.SIGKILL)
	}
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	// A busy worker does not notice the death of its parent: it would go on, and keep the
	// next server from starting. A parent that stands still starts no more of them.
	err := pause(process)
	workers, listErr := host.Children(process.PID())
	signal(workers, syscall.SIGKILL)
	if err = errors.Join(err, listErr, s.end(context.Background(), syscall.SIGKILL)); err != nil {
		return s.errorf("kill: %w", err)
	}
	for _, worker := range workers {
		if err := within(stopTimeout, func() bool { return !host.Alive(worker) }); err != nil {
			return s.errorf("kill: worker %d is still there: %w", worker, err)
		}
	}
	return nil
}

// quit ends the server at once, with as much care as it needs.
func (s *Server) quit() error {
	if s.program.QuitSignal == 0 {
		return s.kill()
	}
	_ = s.Resume() // what is paused does not hear the signal
	err := s.end(context.Background(), s.program.QuitSignal)
	if err != nil && !errors.Is(err, ErrNotRunning) {
		return s.kill()
	}
	return err
}

// Pause stops the server in its tracks until Resume: a server that hangs. When it returns
// every thread stands still.
func (s *Server) Pause() error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	if err := pause(process); err != nil {
		return s.errorf("pause: %w", err)
	}
	workers, err := s.workers(process)
	if err != nil {
		return err
	}
	signal(workers, syscall.SIGSTOP)
	for _, worker := range workers {
		if err := awaitStopped(worker); err != nil {
			return s.errorf("pause: %w", err)
		}
	}
	return nil
}

// pause stops a process. A thread that runs, or is in a call that cannot be interrupted,
// may take a moment to stop.
func pause(process *host.Process) error {
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(process.PID())
}

func awaitStopped(pid int) error {
	if err := within(stopTimeout, func() bool { return host.Stopped(pid) }); err != nil {
		return fmt.Errorf("process %d does not stand still: %w", pid, err)
	}
	return nil
}

// Resume lets a paused server go on.
func (s *Server) Resume() error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	workers, err := s.workers(process)
	if err != nil {
		return err
	}
	signal(workers, syscall.SIGCONT)
	if err := process.Signal(syscall.SIGCONT); err != nil {
		return s.errorf("%w", err)
	}
	return nil
}

// workers returns the processes that work for the server now.
func (s *Server) workers(process *host.Process) ([]int, error) {
	if !s.program.Workers {
		return nil, nil
	}
	workers, err := host.Children(process.PID())
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	return workers, nil
}

// signal sends a signal to processes, of which some may have ended.
func signal(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

// PID returns the id of the server's process, 0 if it is not running.
func (s *Server) PID() int {
	if process := s.running(); process != nil {
		return process.PID()
	}
	return 0
}

// PIDs returns the ids of the server's process and of those that it has started, which
// may come and go; its own is the first. It is ErrNotRunning if there are none.
func (s *Server) PIDs() ([]int, error) {
	process := s.running()
	if process == nil {
		return nil, ErrNotRunning
	}
	children, err := host.Children(process.PID())
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	return append([]int{process.PID()}, children...), nil
}

// Done returns a channel that is closed when the server that runs now has ended; closed
// already if none runs.
func (s *Server) Done() <-chan struct{} {
	if process := s.running(); process != nil {
		return process.Done()
	}
	done := make(chan struct{})
	close(done)
	return done
}

// within waits until a condition holds.
func within(most time.Duration, holds func() bool) error {
	ticker := time.NewTicker(pollInterval / 10)
	defer ticker.Stop()
	for began := time.Now(); !holds(); <-ticker.C {
		if time.Since(began) > most {
			return fmt.Errorf("not within %v", most)
		}
	}
	return nil
}
