package kafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

const loopback = "127.0.0.1"

// Server is a private broker with its own data and ports; see daemon.Server.
type Server struct {
	*daemon.Server

	secured *Secured
}

// Start makes a broker and waits until it answers, at most 90 seconds; it fails at
// once, with the end of the broker's log, when the broker dies. ctx bounds the start
// only. The caller must call Close.
func Start(ctx context.Context, config Config) (*Server, error) {
	java, jars, err := distribution.Install(ctx)
	if err != nil {
		return nil, err
	}
	n := &node{java: java, jars: jars, config: config}
	server, err := daemon.Start(ctx, daemon.Program{
		Name:      "kafka",
		Configure: func(dir, address string) error { return n.configure(ctx, dir, address) },
		Command: func(dir, _ string) host.Command {
			return n.command(dir, "kafka.Kafka", filepath.Join(dir, propertiesFile))
		},
		Ready: answers,
		InUse: []string{"Address already in use", "Failed to bind"},
	})
	if err != nil {
		return nil, err
	}
	return &Server{Server: server, secured: n.secured}, nil
}

// URL returns the same as Address; see shared.Instance.
func (s *Server) URL() string { return s.Address() }

// node is how a broker is run.
type node struct {
	java, jars string
	config     Config
	control    int // port of the controller
	secured    *Secured
}

const (
	propertiesFile = "server.properties"
	loggingFile    = "log4j2.properties"
	dataDir        = "data"
)

// configure chooses the further ports, and makes the files and an empty data directory.
func (n *node) configure(ctx context.Context, dir, address string) error {
	var err error
	if n.control, err = host.FreePort(); err == nil && n.config.Secured {
		n.secured, err = secure(dir)
	}
	if err != nil {
		return err
	}
	for name, content := range map[string]string{propertiesFile: n.properties(dir, address), loggingFile: logging} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, dataDir)); err != nil {
		return err
	}
	if err := n.format(ctx, dir); err != nil {
		return fmt.Errorf("format the data directory: %w", err)
	}
	return nil
}

// format makes the data directory. But for users it is the same for all brokers, except their ids.
func (n *node) format(ctx context.Context, dir string) error {
	format := []string{"format", "-t", "millpondmillpondmillpo", "-c", propertiesFile}
	if n.secured != nil {
		command := n.command(dir, "kafka.tools.StorageTool", append(format, n.secured.users()...)...)
		command.Dir = dir
		return host.Run(ctx, command)
	}
	data := filepath.Join(dir, dataDir)
	err := host.FromTemplate(ctx, "data-kafka", data, func(string) host.Command {
		return n.command("", "kafka.tools.StorageTool", format...) // relative, and so the same for all
	})
	if err != nil {
		return err
	}
	ids := fmt.Sprintf("version=1\nnode.id=1\ncluster.id=%s\ndirectory.id=%s\n", newID(), newID())
	return os.WriteFile(filepath.Join(data, "meta.properties"), []byte(ids), 0o600)
}

func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func (n *node) command(dir, class string, args ...string) host.Command {
	return host.Command{
		Path: n.java,
		Args: append([]string{
			"-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
			"-Dlog4j2.configurationFile=" + filepath.Join(dir, loggingFile), "-cp", filepath.Join(n.jars, "*"), class,
		}, args...),
		Env: []string{"PATH=" + filepath.Dir(n.java) + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"},
	}
}

// answers returns nil if the broker answers.
func answers(ctx context.Context, address string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}
