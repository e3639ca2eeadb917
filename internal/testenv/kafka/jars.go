package kafka

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
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Version is the version of the broker.
const Version = "4.3.1"

//go:embed pom.xml
var pom []byte

// Install makes sure that a broker can be started: it installs Java and Maven where
// they are missing and can be installed, and fetches the broker's jars, once for this
// user. Start does the same; this is for who wants its error earlier.
func Install(ctx context.Context) error {
	_, _, err := installed(ctx)
	return err
}

// installed returns the program that runs Java and the directory of the jars.
func installed(ctx context.Context) (java, jars string, err error) {
	if java, err = program(ctx, "java", "default-jre-headless"); err != nil {
		return "", "", err
	}
	if err := recent(ctx, java); err != nil {
		return "", "", err
	}
	jars, err = fetch(ctx)
	return java, jars, err
}

func program(ctx context.Context, name, debian string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if err := host.Apt(ctx, "", debian); err != nil {
		if errors.Is(err, host.ErrCannotInstall) {
			return "", fmt.Errorf("kafka: %s is missing: install Java 17 or later and Maven (Debian, Ubuntu: sudo apt-get install default-jre-headless maven; macOS: brew install openjdk maven), or set %s to the address of a broker, which is enough for all tests that do not kill theirs", name, BrokersVariable)
		}
		return "", fmt.Errorf("kafka: %w", err)
	}
	if path, err = exec.LookPath(name); err != nil {
		return "", fmt.Errorf("kafka: the package %s is installed, but %s is not in PATH", debian, name)
	}
	return path, nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func recent(ctx context.Context, java string) error {
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput() // #nosec G204 -- from PATH
	if err != nil {
		return fmt.Errorf("kafka: java -version: %w", err)
	}
	const oldest = 17
	match := javaVersion.FindSubmatch(out)
	if match == nil {
		return nil // not in a form that we know; the broker will tell
	}
	if major, _ := strconv.Atoi(string(match[1])); major < oldest {
		return fmt.Errorf("kafka: java in PATH is version %d: install %d or later", major, oldest)
	}
	return nil
}

// fetch returns the directory of the jars, which it fills once. It appears with all of
// them in it or not at all.
func fetch(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	root := filepath.Join(cache, "millpond-testenv")
	if err := os.MkdirAll(root, 0o750); err != nil {
		return "", fmt.Errorf("kafka: %w", err)
	}
	dir := filepath.Join(root, "kafka-"+Version)
	if complete(dir) {
		return dir, nil
	}
	lock, err := host.AcquireLock(ctx, filepath.Join(root, "kafka.lock"), host.Exclusive)
	if err != nil {
		return "", fmt.Errorf("kafka: %w", err)
	}
	defer lock.Release()
	if complete(dir) {
		return dir, nil
	}
	mvn, err := program(ctx, "mvn", "maven")
	if err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(root, "fetch-")
	if err != nil {
		return "", fmt.Errorf("kafka: %w", err)
	}
	defer os.RemoveAll(work)
	project, jars := filepath.Join(work, "pom.xml"), filepath.Join(work, "jars")
	if err := os.WriteFile(project, pom, 0o600); err != nil {
		return "", fmt.Errorf("kafka: %w", err)
	}
	err = host.Run(ctx, host.Command{
		Path: mvn, Dir: work, Env: os.Environ(),
		Args: []string{
			"-q", "-B", "-f", project, "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
			"-Dkafka.version=" + Version, "-DincludeScope=runtime", "-DoutputDirectory=" + jars,
		},
	})
	if err != nil {
		return "", fmt.Errorf("kafka: fetch the broker from Maven's central repository: %w", err)
	}
	if !complete(jars) {
		return "", errors.New("kafka: Maven has not fetched the broker")
	}
	if err := os.Rename(jars, dir); err != nil {
		return "", fmt.Errorf("kafka: %w", err)
	}
	return dir, nil
}

func complete(dir string) bool {
	jars, _ := filepath.Glob(filepath.Join(dir, "kafka_*.jar"))
	return len(jars) > 0 && strings.Contains(jars[0], Version)
}
