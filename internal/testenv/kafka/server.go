package kafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

const (
	loopback     = "127.0.0.1"
	readyTimeout = 90 * time.Second
	stopTimeout  = 30 * time.Second
	pollInterval = 20 * time.Millisecond
)

var (
	// ErrRunning: the broker is up already.
	ErrRunning = errors.New("kafka: broker is running")
	// ErrNotRunning: the broker is not up, or has died.
	ErrNotRunning = errors.New("kafka: broker is not running")
	// ErrClosed: the broker and its data are gone.
	ErrClosed = errors.New("kafka: broker is closed")

	errPortTaken = errors.New("a port is taken")
)

// Server is a private broker with its own data and ports. It keeps both over Kill, Stop
// and Start. Its methods may be called by several goroutines; those that change its
// state wait for each other.
//
// The broker ends with this process, however that ends (Linux only).
type Server struct {
	java, jars    string
	dir           *host.Dir
	port, control int
	secured       *Secured

	mu      sync.Mutex // serializes changes of state
	current sync.Mutex // guards process for readers, never held for long
	process *host.Process
	closed  bool
}

// Start makes a broker and waits until it answers, at most 90 seconds; it fails at
// once, with the end of the broker's log, when the broker dies. ctx bounds the start
// only. The caller must call Close.
func Start(ctx context.Context, config Config) (*Server, error) {
	java, jars, err := distribution.Install(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := host.NewDir(ctx, "kafka")
	if err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	s := &Server{java: java, jars: jars, dir: dir}
	if err := s.create(ctx, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) create(ctx context.Context, config Config) error {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f // an id that began with a dash would be taken for an option
	for attempt := 0; ; attempt++ {
		var err error
		if s.port, err = host.FreePort(); err == nil {
			s.control, err = host.FreePort()
		}
		if err == nil && config.Secured {
			s.secured, err = secure(s.dir.Path)
		}
		if err == nil {
			err = os.WriteFile(s.file("server.properties"), []byte(s.properties(config)), 0o600)
		}
		if err == nil {
			err = os.WriteFile(s.file("log4j2.properties"), []byte(logging), 0o600)
		}
		if err != nil {
			return fmt.Errorf("kafka: %w", err)
		}
		if err := os.RemoveAll(s.file("data")); err != nil {
			return fmt.Errorf("kafka: %w", err)
		}
		format := []string{"format", "-t", base64.RawURLEncoding.EncodeToString(id[:]), "-c", s.file("server.properties")}
		if s.secured != nil {
			format = append(format, s.secured.users()...)
		}
		if err := host.Run(ctx, s.command("kafka.tools.StorageTool", format...)); err != nil {
			return fmt.Errorf("kafka: format the data directory: %w", err)
		}
		if err = s.launch(ctx); !errors.Is(err, errPortTaken) || attempt == 5 {
			return err
		}
	}
}

func (s *Server) file(name string) string { return filepath.Join(s.dir.Path, name) }

// LogFile returns the path of the broker's log.
func (s *Server) LogFile() string { return s.file("kafka.log") }

func (s *Server) command(class string, args ...string) host.Command {
	return host.Command{
		Path: s.java,
		Args: append([]string{
			"-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
			"-Dlog4j2.configurationFile=" + s.file("log4j2.properties"), "-cp", filepath.Join(s.jars, "*"), class,
		}, args...),
		Dir: s.dir.Path,
		Env: []string{"PATH=" + filepath.Dir(s.java) + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"},
		Log: s.LogFile(),
	}
}

// Address returns host and port of the broker.
func (s *Server) Address() string { return net.JoinHostPort(loopback, strconv.Itoa(s.port)) }

// URL returns the same; see shared.Instance.
func (s *Server) URL() string { return s.Address() }

// Start starts a broker that was stopped or killed, on the same data and ports, and
// waits until it answers.
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
	process, err := host.StartProcess(s.command("kafka.Kafka", s.file("server.properties")))
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	s.setProcess(process)
	err = s.waitReady(ctx, process)
	if err == nil {
		return nil
	}
	log := host.Tail(s.LogFile(), logged)
	if strings.Contains(log, "Address already in use") || strings.Contains(log, "Failed to bind") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	err = fmt.Errorf("kafka: start: %w%s", err, log)
	if killErr := s.kill(); !errors.Is(killErr, ErrNotRunning) {
		err = errors.Join(err, killErr)
	}
	return err
}

// waitReady waits until the broker answers and has taken the lead of its log.
func (s *Server) waitReady(ctx context.Context, process *host.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("it was not ready within %v", readyTimeout))
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Address()), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		err := client.Ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("the broker ended (%w)", orNil(process.Err()))
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

func orNil(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// Stop shuts the broker down cleanly.
func (s *Server) Stop(ctx context.Context) error { return s.end(ctx, syscall.SIGTERM) }

// Kill ends the broker with SIGKILL, and returns when it is gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.signal(ctx, syscall.SIGKILL)
}

func (s *Server) end(ctx context.Context, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return s.signal(ctx, sig)
}

// signal ends the process and waits for that.
func (s *Server) signal(ctx context.Context, sig syscall.Signal) error {
	process := s.running()
	if process == nil {
		return ErrNotRunning
	}
	if err := process.Signal(sig); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	if err := process.Wait(ctx); err != nil {
		return fmt.Errorf("kafka: stop: %w%s", err, host.Tail(s.LogFile(), 0))
	}
	return nil
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
		return fmt.Errorf("kafka: %w", err)
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
	if removeErr := s.dir.Remove(); removeErr != nil {
		err = errors.Join(err, fmt.Errorf("kafka: %w", removeErr))
	}
	return err
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
