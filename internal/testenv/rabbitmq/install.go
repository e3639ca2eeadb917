package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/unstable"
)

// URLVariable names the environment variable that points tests at a broker of the user's:
// amqp://user:password@host:port/vhost.
const URLVariable = "MILLPOND_TEST_RABBITMQ_URL"

// Version says which RabbitMQ: not a number, because what is to be had moves on. A
// connection's server properties tell the number.
type Version string

const (
	// Packaged is the distribution's own, 3.10 on Debian 12. It is the default.
	Packaged Version = "packaged"
	// Newest is Debian unstable's, 4.3 or later.
	Newest Version = "newest"
)

// Versions returns all of them, for tests that run on each.
func Versions() []Version { return []Version{Packaged, Newest} }

// Install makes sure that a broker of the version can be started: it installs the
// distribution's, or unpacks unstable's into the cache. Start does the same; this is for
// who wants its error earlier.
func Install(ctx context.Context, version Version) error {
	_, err := installed(ctx, version)
	return err
}

// programs is where an installed RabbitMQ is.
type programs struct {
	sbin string // rabbitmq-server and rabbitmqctl; not the system's wrappers, which change the account
	bin  string // erl and epmd
}

func installed(ctx context.Context, version Version) (programs, error) {
	var p programs
	var err error
	switch version {
	case Packaged, "":
		p, err = packaged(ctx)
	case Newest:
		p, err = newest(ctx)
	default:
		return p, fmt.Errorf("rabbitmq: version %q is not known: use one of %q", version, Versions())
	}
	if errors.Is(err, host.ErrCannotInstall) {
		return p, fmt.Errorf("rabbitmq: no RabbitMQ found: install it (Debian, Ubuntu: sudo apt-get install rabbitmq-server; macOS: brew install rabbitmq), or set %s, which is enough for all tests that do not kill their broker", URLVariable)
	}
	if errors.Is(err, unstable.ErrUnavailable) {
		return p, fmt.Errorf("rabbitmq: no RabbitMQ 4.3 or later: %w; or set %s to the address of one, which is enough for all tests that do not kill their broker", err, URLVariable)
	}
	if err != nil {
		return p, fmt.Errorf("rabbitmq: %w", err)
	}
	return p, nil
}

func packaged(ctx context.Context) (programs, error) {
	if p, ok := findPrograms(); ok {
		return p, nil
	}
	if err := host.Apt(ctx, "", "rabbitmq-server"); err != nil {
		return programs{}, err
	}
	p, ok := findPrograms()
	if !ok {
		return programs{}, errors.New("the package rabbitmq-server is installed, but its programs are not below /usr/lib/rabbitmq")
	}
	return p, nil
}

// findPrograms looks where Debian puts them, then in PATH.
func findPrograms() (programs, bool) {
	erl, err := exec.LookPath("erl")
	if err != nil {
		return programs{}, false
	}
	dirs := []string{"/usr/lib/rabbitmq/bin"}
	if path, err := exec.LookPath("rabbitmq-server"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "rabbitmq-server")); err == nil {
			return programs{sbin: dir, bin: filepath.Dir(erl)}, true
		}
	}
	return programs{}, false
}

const erlang = "usr/lib/erlang"

var fromUnstable = unstable.Software{
	Name:     "rabbitmq",
	Packages: []string{"rabbitmq-server"},
	// What installs and starts it as a service of the system.
	Omit:    []string{"perl*", "libperl*", "python3*", "libpython3*", "passwd", "adduser", "debconf", "*pam*", "*systemd*", "init-system-helpers", "logrotate"},
	Program: "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
	Prepare: relocate,
}

func newest(ctx context.Context) (programs, error) {
	tree, err := fromUnstable.Unpack(ctx)
	if err != nil {
		return programs{}, err
	}
	server, err := tree.Glob(fromUnstable.Program)
	return programs{sbin: filepath.Dir(server), bin: tree.Path(erlang, "bin")}, err
}

// relocate tells Erlang's scripts where it is.
func relocate(tree *unstable.Tree) error {
	if err := tree.Wrap(erlang+"/erts-*/bin/*", erlang+"/bin/*"); err != nil {
		return err
	}
	for _, pattern := range []string{erlang + "/bin/erl", erlang + "/erts-*/bin/erl"} {
		path, err := tree.Glob(pattern)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path) // #nosec G304 -- in the tree
		if err != nil {
			return err
		}
		script := strings.ReplaceAll(string(b), "ROOTDIR=/"+erlang, "ROOTDIR='"+tree.Path(erlang)+"'")
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil { // #nosec G306 -- a program
			return err
		}
	}
	return nil
}
