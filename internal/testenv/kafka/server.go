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
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f // an id that began with a dash would be taken for an option
	format := []string{"format", "-t", base64.RawURLEncoding.EncodeToString(id[:]), "-c", filepath.Join(dir, propertiesFile)}
	if n.secured != nil {
		format = append(format, n.secured.users()...)
	}
	command := n.command(dir, "kafka.tools.StorageTool", format...)
	command.Dir = dir
	if err := host.Run(ctx, command); err != nil {
		return fmt.Errorf("format the data directory: %w", err)
	}
	return nil
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
