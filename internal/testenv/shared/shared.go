// Package shared lets all test packages of one run use one server.
//
// go test runs every package in a process of its own, several at a time. The first
// that needs the server starts a supervisor: its own program once more, detached,
// which starts the server and holds it. Whoever uses the server holds a shared file
// lock for as long as it lives; when nobody has held it for a while, the supervisor
// stops the server and ends.
//
// Every state is a lock that the kernel releases when its holder dies, so a killed
// test, client or supervisor leaves nothing that would stop the next run:
//
//	users.lock       shared: each process that uses the server; exclusive: the supervisor, while it stops
//	supervisor.lock  exclusive: the supervisor, from before its start to its end
//	start.lock       exclusive: the process that looks for, or starts, the supervisor
//	state.json       the server's address; true only while supervisor.lock is held
package shared

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Instance is a running server.
type Instance interface {
	URL() string
	Done() <-chan struct{} // closed when it has ended by itself
	Close() error
}

// Server is a kind of server that is started once and shared by the processes that
// work on the same checkout.
type Server struct {
	Name    string                                      // of the kind, such as "postgres"
	Version string                                      // of its settings: other settings, other server
	Start   func(ctx context.Context) (Instance, error) // called in the supervisor

	// IdleTimeout is how long the server waits for another user; zero means 30
	// seconds. It must outlast the pauses between the packages of one run.
	IdleTimeout time.Duration

	mu    sync.Mutex
	users *host.FileLock // never released: the end of the process does it
	url   string
}

const (
	pollInterval = 20 * time.Millisecond
	// openTimeout leaves time for a start on a busy machine, and for the end of a
	// server before it. A supervisor that fails is noticed at once.
	openTimeout = 2 * time.Minute

	usersLock      = "users.lock"
	supervisorLock = "supervisor.lock"
	startLock      = "start.lock"
	stateFile      = "state.json"
	logFile        = "supervisor.log"
)

var errGone = errors.New("the supervisor has ended, its log")

type state struct {
	URL string `json:"url"`
}

// Open returns the address of the server, which it starts if nobody has, and keeps
// it running until this process ends.
func (s *Server) Open(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.url != "" {
		return s.url, nil
	}
	if os.Getenv(nameVariable) == s.Name {
		// We are a supervisor, and should never have come as far as this.
		return "", fmt.Errorf("shared: %s: SuperviseIfAsked is not called in an init function", s.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	dir, err := s.dir()
	if err != nil {
		return "", fmt.Errorf("shared: %w", err)
	}
	url, users, err := s.open(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("shared: %s: %w", s.Name, err)
	}
	s.url, s.users = url, users
	return url, nil
}

func (s *Server) open(ctx context.Context, dir string) (_ string, users *host.FileLock, err error) {
	// While we hold this one the supervisor does not stop.
	if users, err = host.AcquireLock(ctx, filepath.Join(dir, usersLock), host.Shared); err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			_ = users.Release()
		}
	}()
	starting, err := host.AcquireLock(ctx, filepath.Join(dir, startLock), host.Exclusive)
	if err != nil {
		return "", nil, err
	}
	defer starting.Release()

	for {
		supervisor, err := host.TryLock(filepath.Join(dir, supervisorLock), host.Exclusive)
		spawned := err == nil // nobody has it: there is no supervisor
		if spawned {
			err = errors.Join(s.spawn(dir, supervisor), supervisor.Release())
		}
		if err != nil && !errors.Is(err, host.ErrLocked) {
			return "", nil, err
		}
		url, err := awaitState(ctx, dir)
		// One that we have found may have been about to end.
		if spawned || !errors.Is(err, errGone) {
			return url, users, err
		}
	}
}

// spawn starts the supervisor and hands it the lock.
func (s *Server) spawn(dir string, lock *host.FileLock) error {
	if err := os.Remove(filepath.Join(dir, stateFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program) // #nosec G204 -- ourselves
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), nameVariable+"="+s.Name, dirVariable+"="+dir)
	// Not our output: go test would wait for the supervisor to close it.
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lock.File()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no signals of our terminal
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// awaitState waits until the supervisor has its server running, or has died.
func awaitState(ctx context.Context, dir string) (string, error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		b, err := os.ReadFile(filepath.Join(dir, stateFile))
		if err == nil {
			var st state
			if err := json.Unmarshal(b, &st); err != nil {
				return "", err
			}
			return st.URL, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		if lock, err := host.TryLock(filepath.Join(dir, supervisorLock), host.Exclusive); err == nil {
			_ = lock.Release()
			return "", fmt.Errorf("%w:%s", errGone, host.Tail(filepath.Join(dir, logFile), 0))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return "", fmt.Errorf("waiting for the supervisor: %w%s", context.Cause(ctx), host.Tail(filepath.Join(dir, logFile), 0))
		}
	}
}

// dir returns the directory of this kind and version of server in this checkout.
func (s *Server) dir() (string, error) {
	root, err := host.Root()
	if err != nil {
		return "", err
	}
	checkout, err := checkoutDir()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(checkout + "\x00" + s.Version))
	dir := filepath.Join(root, "shared-"+s.Name+"-"+hex.EncodeToString(key[:6]))
	return dir, os.MkdirAll(dir, 0o700)
}

// checkoutDir returns the nearest directory upwards that has a go.mod. Tests run in
// the directory of their package.
func checkoutDir() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return start, nil
		}
	}
}
