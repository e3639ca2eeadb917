package mysql

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Product says whose server it is.
type Product string

// The products that there are.
const (
	MariaDB Product = "mariadb"
	MySQL   Product = "mysql"
)

// URLVariable names the environment variable that gives the shared server of tests
// another address. This package does not read it.
func (p Product) URLVariable() string {
	if p == MySQL {
		return "MILLPOND_TEST_MYSQL_URL"
	}
	return "MILLPOND_TEST_MARIADB_URL"
}

// programs are the commands of a server and of what makes its data directory.
type programs struct {
	server     host.Command // without options
	options    []string     // the server needs them wherever it runs
	initialize func(dataDir string) host.Command
}

// with adds arguments to a command.
func with(command host.Command, args ...string) host.Command {
	command.Args = slices.Concat(command.Args, args)
	command.Env = []string{"PATH=" + filepath.Dir(command.Path) + ":/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "TZ=UTC"}
	return command
}

// Install makes sure that a server can be started: it installs one if there is none.
// Start does the same; this is for who wants its error earlier.
func Install(ctx context.Context, product Product) error {
	_, err := find(ctx, product)
	return err
}

// find returns the programs of a product, after installing them if they are missing.
func find(ctx context.Context, product Product) (programs, error) {
	if product == MySQL {
		return findMySQL(ctx)
	}
	return findMariaDB(ctx)
}

func findMariaDB(ctx context.Context) (programs, error) {
	found, ok := lookMariaDB()
	if ok {
		return found, nil
	}
	// The core packages have the programs alone: no service, no account, no data.
	err := host.Apt(ctx, "", "mariadb-server-core", "mariadb-client-core")
	if errors.Is(err, host.ErrCannotInstall) {
		return programs{}, fmt.Errorf("mysql: no MariaDB server found: install it (Debian, Ubuntu: sudo apt-get install mariadb-server; macOS: brew install mariadb), or set %s, which is enough for all tests that do not kill their server", MariaDB.URLVariable())
	}
	if err != nil {
		return programs{}, fmt.Errorf("mysql: %w", err)
	}
	if found, ok = lookMariaDB(); !ok {
		return programs{}, errors.New("mysql: the packages mariadb-server-core and mariadb-client-core are installed, but mariadbd, mariadb-install-db and my_print_defaults are neither in PATH nor in /usr/sbin and /usr/bin")
	}
	return found, nil
}

func lookMariaDB() (programs, bool) {
	server, serverOK := look("mariadbd")
	script, scriptOK := look("mariadb-install-db")
	_, readerOK := look("my_print_defaults") // which the script needs, even without defaults
	initialize := func(dataDir string) host.Command {
		return with(host.Command{Path: script}, append([]string{
			"--no-defaults", "--datadir=" + dataDir, "--skip-test-db",
			"--auth-root-authentication-method=normal", // else root is let in through the socket only
		}, asRoot()...)...)
	}
	return programs{server: host.Command{Path: server}, initialize: initialize}, serverOK && scriptOK && readerOK
}

// look finds a program in PATH, and where Debian puts those of administrators.
func look(name string) (string, bool) {
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/usr/bin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			if path, err = filepath.Abs(path); err == nil {
				return path, true
			}
		}
	}
	return "", false
}
