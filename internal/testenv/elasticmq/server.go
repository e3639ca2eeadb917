package elasticmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/maven"
)

// Version is the version of the server.
const Version = "1.7.1"

// The environment variables that point tests at another server with SQS's interface, or
// at SQS itself.
const (
	EndpointVariable = "MILLPOND_TEST_SQS_ENDPOINT" // such as http://127.0.0.1:9324
	RegionVariable   = "MILLPOND_TEST_SQS_REGION"   // such as eu-central-1; without an endpoint it means AWS
)

// Region is the region that the server claims to be in.
const Region = "elasticmq"

var distribution = maven.Server{
	Name: "elasticmq", Group: "org.elasticmq", Artifact: "elasticmq-server_2.13", Version: Version,
	Instead: "set " + EndpointVariable + " to the address of a server with SQS's interface, which is enough for all tests that do not kill theirs",
}

// Install makes sure that a server can be started: it installs Java and Maven where they
// are missing and can be installed, and fetches the server's jars, once for this user.
// Start does the same; this is for who wants its error earlier.
func Install(ctx context.Context) error {
	_, _, err := distribution.Install(ctx)
	return err
}

// Server is a private server; see daemon.Server.
type Server struct{ *daemon.Server }

// Start starts a server and waits until it answers, at most 90 seconds. Its queues and
// messages survive a kill, since it flushes each change to the disk before it answers. ctx
// bounds the start only. The caller must call Close.
func Start(ctx context.Context) (*Server, error) { return start(ctx, true) }

// StartInMemory is Start, but that a restart forgets queues and messages. The server is
// several times as fast.
func StartInMemory(ctx context.Context) (*Server, error) { return start(ctx, false) }

func start(ctx context.Context, durable bool) (*Server, error) {
	java, jars, err := distribution.Install(ctx)
	if err != nil {
		return nil, err
	}
	server, err := daemon.Start(ctx, daemon.Program{
		Name:      "elasticmq",
		Configure: func(dir, address string) error { return configure(dir, address, durable) },
		Command: func(dir, address string) host.Command {
			return host.Command{
				Path: java,
				Args: []string{
					"-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
					"-Dconfig.file=" + filepath.Join(dir, configFile), "-Dlogback.configurationFile=" + filepath.Join(dir, loggingFile),
					"-cp", filepath.Join(jars, "*"), "org.elasticmq.server.Main",
				},
				Env: []string{"PATH=" + filepath.Dir(java) + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"},
			}
		},
		Ready: daemon.AnswersHTTP("/?Action=ListQueues"),
		InUse: []string{"Address already in use"},
	})
	if err != nil {
		return nil, err
	}
	return &Server{server}, nil
}

// URL returns the address that clients are given as their endpoint.
func (s *Server) URL() string { return "http://" + s.Address() }

// RestartEmpty stops the server if it runs, and starts it without its queues and their
// messages: what an emulator does that keeps everything in memory.
func (s *Server) RestartEmpty(ctx context.Context) error {
	return s.RestartAfter(ctx, func(dir string) error {
		files, err := filepath.Glob(filepath.Join(dir, dataFiles+"*"))
		for _, file := range files {
			err = errors.Join(err, os.RemoveAll(file))
		}
		return err
	})
}

const (
	configFile  = "elasticmq.conf"
	loggingFile = "logback.xml"
	dataFiles   = "data"
)

func configure(dir, address string, durable bool) error {
	bindHost, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	config := fmt.Sprintf(configuration, bindHost, port, Region, filepath.Join(dir, dataFiles), durable)
	if err := os.WriteFile(filepath.Join(dir, configFile), []byte(config), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, loggingFile), []byte(logging), 0o600)
}

// Without WRITE_DELAY=0 a part of what was accepted is gone when the server is killed.
const configuration = `include classpath("application.conf")
node-address {
  protocol = http
  host = %[1]q
  port = %[2]s
  context-path = ""
}
rest-sqs {
  enabled = true
  bind-hostname = %[1]q
  bind-port = %[2]s
  sqs-limits = strict
}
rest-stats.enabled = false
aws {
  region = %[3]q
  accountId = 000000000000
}
messages-storage {
  enabled = %[5]t
  driver-class = "org.h2.Driver"
  uri = "jdbc:h2:%[4]s;WRITE_DELAY=0"
  username = ""
  password = ""
}
`

const logging = `<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
`
