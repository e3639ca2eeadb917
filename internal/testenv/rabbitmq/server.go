package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

const (
	loopback     = "127.0.0.1"
	readyTimeout = 90 * time.Second
	stopTimeout  = 30 * time.Second
	pollInterval = 50 * time.Millisecond
)

var (
	// ErrRunning: the broker is up already.
	ErrRunning = errors.New("rabbitmq: broker is running")
	// ErrNotRunning: the broker is not up, or has died.
	ErrNotRunning = errors.New("rabbitmq: broker is not running")
	// ErrClosed: the broker and its data are gone.
	ErrClosed = errors.New("rabbitmq: broker is closed")

	errPortTaken = errors.New("a port is taken")
)

// Server is a private broker with its own data and ports. It keeps both over Kill, Stop
// and Start. Its methods may be called by several goroutines; those that change its
// state wait for each other.
//
// The broker ends with this process, however that ends (Linux only).
type Server struct {
	programs programs
	dir      *host.Dir

	port, distribution int
	names              int // port of Erlang's name service, which the node has for itself
	nameService        *host.Process

	mu      sync.Mutex // serializes changes of state
	current sync.Mutex // guards process for readers, never held for long
	process *host.Process
	closed  bool
}

// Start makes a broker and waits until it takes connections, at most 90 seconds; it fails
// at once, with the end of the broker's log, when the broker dies. ctx bounds the start
// only. The caller must call Close.
func Start(ctx context.Context, config Config) (*Server, error) {
	programs, err := installed(ctx, config.Version)
	if err != nil {
		return nil, err
	}
	dir, err := host.NewDir(ctx, "rabbitmq")
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	s := &Server{programs: programs, dir: dir}
	if err := s.create(ctx, config); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) create(ctx context.Context, config Config) error {
	for attempt := 0; ; attempt++ {
		for _, port := range []*int{&s.port, &s.distribution, &s.names} {
			var err error
			if *port, err = host.FreePort(); err != nil {
				return fmt.Errorf("rabbitmq: %w", err)
			}
		}
		for name, content := range s.files(config) {
			if err := os.WriteFile(s.file(name), []byte(content), 0o600); err != nil {
				return fmt.Errorf("rabbitmq: %w", err)
			}
		}
		if err := os.RemoveAll(s.file("data")); err != nil {
			return fmt.Errorf("rabbitmq: %w", err)
		}
		if err := s.launch(ctx); !errors.Is(err, errPortTaken) || attempt == 5 {
			return err
		}
		if err := s.endNameService(); err != nil {
			return err
		}
	}
}

// LogFile returns the path of the broker's log.
func (s *Server) LogFile() string { return s.file("rabbitmq.log") }

// URL returns the address of the broker and of its default virtual host, with the user
// guest, who may do everything.
func (s *Server) URL() string {
	u := url.URL{Scheme: "amqp", User: url.UserPassword("guest", "guest"), Host: s.Address(), Path: "/"}
	return u.String()
}

// Address returns host and port.
func (s *Server) Address() string { return net.JoinHostPort(loopback, strconv.Itoa(s.port)) }

func (s *Server) command(path string, args ...string) host.Command {
	return host.Command{Path: path, Args: args, Dir: s.dir.Path, Env: s.environment(), Log: s.LogFile()}
}

// Control runs rabbitmqctl with the broker, which must be running: for example
// Control(ctx, "set_vm_memory_high_watermark", "absolute", "1MB") for a memory alarm.
func (s *Server) Control(ctx context.Context, args ...string) error {
	if err := host.Run(ctx, s.command(filepath.Join(s.programs.sbin, "rabbitmqctl"), args...)); err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	return nil
}

// Start starts a broker that was stopped or killed, on the same data and ports, and
// waits until it takes connections.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// launch starts the node, once, and the name service if it does not run.
func (s *Server) launch(ctx context.Context) error {
	if err := s.startNameService(); err != nil {
		return err
	}
	var logged int64
	if info, err := os.Stat(s.LogFile()); err == nil {
		logged = info.Size()
	}
	process, err := host.StartProcess(s.command(filepath.Join(s.programs.sbin, "rabbitmq-server")))
	if err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	s.setProcess(process)
	err = s.waitReady(ctx, process)
	if err == nil {
		return nil
	}
	log := s.complaints(logged)
	if strings.Contains(log, "eaddrinuse") || strings.Contains(log, "address in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	err = fmt.Errorf("rabbitmq: start: %w%s", err, log)
	if killErr := s.kill(); !errors.Is(killErr, ErrNotRunning) {
		err = errors.Join(err, killErr)
	}
	return err
}

// startNameService starts epmd, which a node would start itself otherwise, and leave
// behind. One whose port is taken ends at once, and the node then fails.
func (s *Server) startNameService() error {
	if s.nameService != nil {
		select {
		case <-s.nameService.Done():
		default:
			return nil
		}
	}
	var err error
	s.nameService, err = host.StartProcess(s.command(filepath.Join(s.programs.bin, "epmd"), "-address", loopback, "-port", strconv.Itoa(s.names)))
	if err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	return nil
}

func (s *Server) endNameService() error {
	if s.nameService == nil {
		return nil
	}
	if err := s.nameService.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.nameService.Wait(ctx)
}

// waitReady waits until a client can connect, which is the last thing that a node allows.
func (s *Server) waitReady(ctx context.Context, process *host.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("it was not ready within %v", readyTimeout))
	defer cancel()
	for {
		conn, err := amqp.DialConfig(s.URL(), amqp.Config{Dial: amqp.DefaultDial(5 * time.Second)})
		if err == nil {
			return conn.Close()
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

// complaints returns what the log has from an offset on that explains a failure: its
// first errors, because Erlang's reports of what they led to come last and are long.
func (s *Server) complaints(offset int64) string {
	b, err := os.ReadFile(s.LogFile())
	if err != nil || offset > int64(len(b)) {
		return ""
	}
	const most = 10
	var lines []string
	for line := range strings.Lines(string(b[offset:])) {
		if strings.Contains(line, " [error] ") && len(lines) < most {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		return host.Tail(s.LogFile(), offset)
	}
	return "\n\t" + strings.Join(lines, "\n\t")
}

func orNil(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
