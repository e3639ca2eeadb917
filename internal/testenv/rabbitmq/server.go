package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

const loopback = "127.0.0.1"

// Server is a private broker with its own data and ports; see daemon.Server.
type Server struct {
	*daemon.Server

	node *node
}

// Start makes a broker and waits until it takes connections, at most 90 seconds; it fails
// at once, with the first errors of the broker's log, when the broker dies. ctx bounds the
// start only. The caller must call Close.
func Start(ctx context.Context, config Config) (*Server, error) {
	programs, err := installed(ctx, config.Version)
	if err != nil {
		return nil, err
	}
	n := &node{programs: programs, config: config}
	server, err := daemon.Start(ctx, daemon.Program{
		Name:      "rabbitmq",
		Configure: n.configure,
		Command: func(string, string) host.Command {
			return n.command(filepath.Join(programs.sbin, "rabbitmq-server"))
		},
		Ready:   answers,
		InUse:   []string{"eaddrinuse", "address in use"},
		Explain: complaints,
	})
	if err != nil {
		return nil, errors.Join(err, n.endNameService())
	}
	return &Server{server, n}, nil
}

// URL returns the address of the broker and of its default virtual host, with the user
// guest, who may do everything.
func (s *Server) URL() string { return brokerURL(s.Address()) }

func brokerURL(address string) string {
	u := url.URL{Scheme: "amqp", User: url.UserPassword("guest", "guest"), Host: address, Path: "/"}
	return u.String()
}

// answers returns nil if a client can connect, which is the last thing that a node allows.
func answers(_ context.Context, address string) error {
	conn, err := amqp.DialConfig(brokerURL(address), amqp.Config{Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		return err
	}
	return conn.Close()
}

// Control runs rabbitmqctl with the broker, which must be running: for example
// Control(ctx, "set_vm_memory_high_watermark", "absolute", "1MB") for a memory alarm.
func (s *Server) Control(ctx context.Context, args ...string) error {
	command := s.node.command(filepath.Join(s.node.programs.sbin, "rabbitmqctl"), args...)
	command.Dir = s.Dir()
	if err := host.Run(ctx, command); err != nil {
		return fmt.Errorf("rabbitmq: %w", err)
	}
	return nil
}

// Kill ends the broker with SIGKILL, and returns when it is gone. Before that it gives
// quorum queues that are younger than about a second the time to be written: a broker that
// is killed earlier comes back with a queue that never finds its leader, whatever it has
// confirmed. Before RabbitMQ 4 the same is true of bindings, which a database in memory
// has that writes its log now and then.
func (s *Server) Kill() error {
	if s.PID() != 0 {
		s.awaitQueues()
		if s.node.config.Version == Packaged {
			s.syncBindings()
		}
	}
	return s.Server.Kill()
}

// syncBindings lets the broker write the log of its database. One that hangs does not.
func (s *Server) syncBindings() {
	const most = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	_ = s.Control(ctx, "eval", "mnesia:sync_log().")
}

// awaitQueues waits until every queue's log is listed where the node looks for them after
// a start. A node that hangs lists none, so there is an end to that.
func (s *Server) awaitQueues() {
	const most, interval = 5 * time.Second, 50 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for deadline := time.Now().Add(most); time.Now().Before(deadline) && !s.queuesListed(); {
		<-ticker.C
	}
}

func (s *Server) queuesListed() bool {
	lists, _ := filepath.Glob(s.node.file("data/*/quorum/*/names.dets"))
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

// Close ends the broker at once and removes its data. Calling it again does nothing.
func (s *Server) Close() error { return errors.Join(s.Server.Close(), s.node.endNameService()) }
