// Package daemon runs a server for tests: it starts it in a directory and at a port of its
// own, waits until it answers, and ends, pauses and starts it again at the same address.
// What is particular to a server stands in its [Program].
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

const (
	loopback     = "127.0.0.1"
	readyTimeout = 90 * time.Second
	stopTimeout  = 30 * time.Second
	pollInterval = 20 * time.Millisecond
	portAttempts = 5
)

var (
	// ErrRunning: the server is up already.
	ErrRunning = errors.New("daemon: server is running")
	// ErrNotRunning: the server is not up, or has died.
	ErrNotRunning = errors.New("daemon: server is not running")
	// ErrClosed: the server and its data are gone.
	ErrClosed = errors.New("daemon: server is closed")

	errInUse = errors.New("its port, or what it needs else, is in use")
)

// Program says how a server is run.
type Program struct {
	Name string // for errors and the directory, such as "elasticmq"

	// Configure writes the files that the server reads into its directory. It is called
	// before the first start, and again, with another port, if that found one in use.
	// Optional.
	Configure func(dir, address string) error

	// Command returns the command that runs the server; its Dir and Log are set by us.
	Command func(dir, address string) host.Command

	// Ready returns nil when the server answers at its address. It is called until then.
	Ready func(ctx context.Context, address string) error

	// InUse is what the server's log says when it cannot start because of what passes:
	// another process has one of its ports, or is left of the last one and has its data.
	// Any of the texts is enough.
	InUse []string

	// Explain returns what the log has, from an offset on, that explains why a start has
	// failed. Optional: it is the log's end otherwise.
	Explain func(logFile string, offset int64) string

	// Workers says that the server's work is done by processes that it starts: they are
	// paused, resumed and killed with it, and none outlives it.
	Workers bool

	// StopSignal shuts the server down cleanly; zero means SIGTERM.
	StopSignal syscall.Signal

	// QuitSignal makes the server end at once, but leave nothing behind in the system.
	// It is tried first by Close; zero means that the server needs no such care.
	QuitSignal syscall.Signal
}

// Server is a private server with its own data and port. It keeps both over Kill, Stop
// and Start. Its methods may be called by several goroutines; those that change its state
// wait for each other.
//
// The server ends with this process, however that ends (Linux only).
type Server struct {
	program Program
	dir     *host.Dir
	port    int

	mu      sync.Mutex // serializes changes of state
	current sync.Mutex // guards process for readers, never held for long
	process *host.Process
	closed  bool
}

// Start starts a server and waits until it answers, at most 90 seconds; it fails at once,
// with the end of the server's log, when the server dies. ctx bounds the start only. The
// caller must call Close.
func Start(ctx context.Context, program Program) (*Server, error) {
	dir, err := host.NewDir(ctx, program.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program.Name, err)
	}
	s := &Server{program: program, dir: dir}
	for attempt := 1; ; attempt++ {
		if s.port, err = host.FreePort(); err == nil && program.Configure != nil {
			err = program.Configure(dir.Path, s.Address())
		}
		if err != nil {
			return nil, errors.Join(s.errorf("%w", err), s.Close())
		}
		err = s.launch(ctx)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errInUse) || attempt == portAttempts {
			return nil, errors.Join(err, s.Close())
		}
	}
}

func (s *Server) errorf(format string, args ...any) error {
	return fmt.Errorf(s.program.Name+": "+format, args...)
}

// Address returns host and port of the server.
func (s *Server) Address() string { return net.JoinHostPort(loopback, strconv.Itoa(s.port)) }

// Dir returns the directory with the server's files.
func (s *Server) Dir() string { return s.dir.Path }

// LogFile returns the path of the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.dir.Path, s.program.Name+".log") }

// Start starts a server that was stopped or killed, on the same data and port, and waits
// until it answers.
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
		if !errors.Is(err, errInUse) { // by an outgoing connection, say, which ends
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
	// Whoever has the port would answer for our server while that finds out.
	listener, err := net.Listen("tcp4", s.Address())
	if err == nil {
		err = listener.Close()
	}
	if err != nil {
		return s.errorf("start: %w: %w", errInUse, err)
	}
	var logged int64
	if info, err := os.Stat(s.LogFile()); err == nil {
		logged = info.Size()
	}
	command := s.program.Command(s.dir.Path, s.Address())
	command.Dir, command.Log = s.dir.Path, s.LogFile()
	process, err := host.StartProcess(command)
	if err != nil {
		return s.errorf("%w", err)
	}
	s.setProcess(process)
	err = s.waitReady(ctx, process)
	if err == nil {
		return nil
	}
	explain := s.program.Explain
	if explain == nil {
		explain = host.Tail
	}
	log := explain(s.LogFile(), logged)
	if slices.ContainsFunc(s.program.InUse, func(text string) bool { return strings.Contains(log, text) }) {
		err = fmt.Errorf("%w: %w", errInUse, err)
	}
	err = s.errorf("start: %w%s", err, log)
	if killErr := s.kill(); !errors.Is(killErr, ErrNotRunning) {
		err = errors.Join(err, killErr)
	}
	return err
}

func (s *Server) waitReady(ctx context.Context, process *host.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("it was not ready within %v", readyTimeout))
	defer cancel()
	for {
		err := s.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("the server ended (%w)", orNil(process.Err()))
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// ask asks the server once. One that has taken the connection may never answer it.
func (s *Server) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.program.Ready(ctx, s.Address())
}

func orNil(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// Restart stops the server if it runs, and starts it.
func (s *Server) Restart(ctx context.Context) error { return s.RestartAfter(ctx, nil) }

// RestartAfter stops the server if it runs, calls between, if that is not nil, with the
// directory of the server's files, and starts it.
func (s *Server) RestartAfter(ctx context.Context, between func(dir string) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.stop(ctx); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	if between != nil {
		if err := between(s.dir.Path); err != nil {
			return s.errorf("%w", err)
		}
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
	err := s.quit()
	if errors.Is(err, ErrNotRunning) {
		err = nil
	}
	if removeErr := s.dir.Remove(); removeErr != nil {
		err = errors.Join(err, s.errorf("%w", removeErr))
	}
	return err
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
