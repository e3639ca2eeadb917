// Package maven fetches servers that run on Java from Maven's central repository, once
// for a user, and finds or installs the Java that runs them.
package maven

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Server is a server in the repository.
type Server struct {
	Name     string // for errors and files, such as "kafka"
	Group    string // such as "org.apache.kafka"
	Artifact string // such as "kafka_2.13"
	Version  string

	// Instead ends the sentence that says what to install where Java or Maven are
	// missing: what to do if that is not wanted.
	Instead string
}

// oldest is the oldest Java that all servers run on.
const oldest = 17

//go:embed pom.xml
var pom []byte

// Install returns the program that runs Java and the directory with the jars of the
// server and of all that it needs. It installs Java and Maven where they are missing and
// can be installed, and fetches the jars if this user does not have them. It may be called
// by several processes at once.
func (s Server) Install(ctx context.Context) (java, jars string, err error) {
	if java, err = s.program(ctx, "java", "default-jre-headless"); err == nil {
		err = recent(ctx, java)
	}
	if err == nil {
		jars, err = host.Cached(ctx, s.Name+"-"+s.Version, s.has, s.fetch)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", s.Name, err)
	}
	return java, jars, nil
}

func (s Server) program(ctx context.Context, name, debian string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if err := host.Apt(ctx, "", debian); err != nil {
		if errors.Is(err, host.ErrCannotInstall) {
			return "", fmt.Errorf("%s is missing: install Java %d or later and Maven (Debian, Ubuntu: sudo apt-get install default-jre-headless maven; macOS: brew install openjdk maven), or %s", name, oldest, s.Instead)
		}
		return "", err
	}
	if path, err = exec.LookPath(name); err != nil {
		return "", fmt.Errorf("the package %s is installed, but %s is not in PATH", debian, name)
	}
	return path, nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func recent(ctx context.Context, java string) error {
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput() // #nosec G204 -- from PATH
	if err != nil {
		return fmt.Errorf("java -version: %w", err)
	}
	match := javaVersion.FindSubmatch(out)
	if match == nil {
		return nil // not in a form that we know; the server will tell
	}
	if major, _ := strconv.Atoi(string(match[1])); major < oldest {
		return fmt.Errorf("java in PATH is version %d: install %d or later", major, oldest)
	}
	return nil
}

func (s Server) has(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, s.Artifact+"-"+s.Version+".jar"))
	return err == nil
}

// fetch puts the jars into a directory.
func (s Server) fetch(ctx context.Context, dir string) error {
	mvn, err := s.program(ctx, "mvn", "maven")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "millpond-maven-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	project := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(project, pom, 0o600); err != nil {
		return err
	}
	err = host.Run(ctx, host.Command{
		Path: mvn, Dir: work, Env: os.Environ(),
		Args: []string{
			"-q", "-B", "-f", project, "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
			"-Dserver.group=" + s.Group, "-Dserver.artifact=" + s.Artifact, "-Dserver.version=" + s.Version,
			"-DincludeScope=runtime", "-DoutputDirectory=" + dir,
		},
	})
	if err != nil {
		return fmt.Errorf("fetch the server from Maven's central repository: %w", err)
	}
	return nil
}
