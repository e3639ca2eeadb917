// Package dynamodblocal runs Amazon's DynamoDB Local for tests, on the loopback interface.
package dynamodblocal

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/maven"
)

// Version is the version of the server. Later ones name artifacts that are not in the repository.
const Version = "3.1.0"

// EndpointVariable points tests at another server with DynamoDB's interface.
const EndpointVariable = "MILLPOND_TEST_DYNAMODB_ENDPOINT" // such as http://127.0.0.1:8000

// Region is the region that clients name.
const Region = "eu-central-1"

var distribution = maven.Server{
	Name: "dynamodb-local", Group: "software.amazon.dynamodb", Artifact: "DynamoDBLocal", Version: Version,
	Instead: "set " + EndpointVariable + " to the address of a DynamoDB Local",
}

//go:embed Local.java
var source []byte

// Install makes sure that a server can be started. Start does the same; this is for who wants
// its error earlier.
func Install(ctx context.Context) error {
	_, _, err := install(ctx)
	return err
}

func install(ctx context.Context) (java, jars string, err error) {
	if java, jars, err = distribution.Install(ctx); err != nil {
		return "", "", err
	}
	// Local.java is run from its source, which a runtime without compiler cannot do.
	modules, err := exec.CommandContext(ctx, java, "--list-modules").Output() // #nosec G204 -- from PATH
	if err == nil && !strings.Contains(string(modules), "jdk.compiler") {
		if err := host.Apt(ctx, "", "default-jdk-headless"); err != nil {
			return "", "", fmt.Errorf("dynamodb-local: a JDK is needed, not only its runtime (Debian, Ubuntu: sudo apt-get install default-jdk-headless): %w", err)
		}
	}
	return java, jars, nil
}

// Server is a private server; see daemon.Server. It forgets its tables when it ends.
type Server struct{ *daemon.Server }

// Start starts a server and waits until it answers, at most 90 seconds. ctx bounds the start
// only. The caller must call Close.
func Start(ctx context.Context) (*Server, error) {
	java, jars, err := install(ctx)
	if err != nil {
		return nil, err
	}
	server, err := daemon.Start(ctx, daemon.Program{
		Name: "dynamodb-local",
		Configure: func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "Local.java"), source, 0o600)
		},
		Command: func(dir, address string) host.Command {
			_, port, _ := net.SplitHostPort(address)
			return host.Command{
				Path: java,
				Args: []string{
					"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
					"-Djava.library.path=" + jars, "-cp", filepath.Join(jars, "*"), filepath.Join(dir, "Local.java"),
					"-inMemory", "-sharedDb", "-port", port, "-disableTelemetry",
				},
				Env: []string{"PATH=" + filepath.Dir(java) + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "DDB_LOCAL_TELEMETRY=0"},
			}
		},
		Ready: answers,
		InUse: []string{"Address already in use"},
	})
	if err != nil {
		return nil, err
	}
	return &Server{server}, nil
}

// URL returns the address that clients are given as their endpoint.
func (s *Server) URL() string { return "http://" + s.Address() }

// answers returns nil once the server refuses a request without credentials.
func answers(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
