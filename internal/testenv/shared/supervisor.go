package shared

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

const (
	nameVariable = "MILLPOND_TESTENV_SUPERVISE"
	dirVariable  = "MILLPOND_TESTENV_DIR"

	lockFD = 3 // the supervisor's lock, inherited

	defaultIdleTimeout = 30 * time.Second
	idlePolls          = 50 // in an idle timeout
)

// SuperviseIfAsked turns this process into the supervisor, and never returns, if Open
// started it as one. It must be called in an init function of a package that
// declares shared servers, so that it comes before any test.
func (s *Server) SuperviseIfAsked() {
	if os.Getenv(nameVariable) != s.Name {
		return
	}
	dir := os.Getenv(dirVariable)
	for _, name := range []string{nameVariable, dirVariable} {
		_ = os.Unsetenv(name)
	}
	syscall.CloseOnExec(lockFD) // the server must not inherit our lock
	if err := s.supervise(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (s *Server) supervise(dir string) (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	instance, err := s.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, instance.Close()) }()
	if err := writeState(dir, state{URL: instance.URL()}); err != nil {
		return err
	}
	defer os.Remove(filepath.Join(dir, stateFile))

	idleTimeout := cmp.Or(s.IdleTimeout, defaultIdleTimeout)
	ticker := time.NewTicker(idleTimeout / idlePolls)
	defer ticker.Stop()
	lastUsed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return errors.New("shared: stopped by a signal")
		case <-instance.Done():
			return fmt.Errorf("shared: the server %s has ended by itself", s.Name)
		case <-ticker.C:
		}
		lock, err := host.TryLock(filepath.Join(dir, usersLock), host.Exclusive)
		if errors.Is(err, host.ErrLocked) {
			lastUsed = time.Now()
			continue
		}
		if err != nil {
			return err
		}
		if time.Since(lastUsed) >= idleTimeout {
			// Kept until we are gone: a new user waits for that, and then
			// finds neither a state nor a supervisor.
			s.users = lock
			return nil
		}
		if err := lock.Release(); err != nil {
			return err
		}
	}
}

// writeState makes the state visible at once and as a whole.
func writeState(dir string, st state) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, stateFile+".new")
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, stateFile))
}
