package mysql

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Product says whose server it is.
type Product string

// The products that there are. NewMariaDB is the MariaDB of Debian unstable, for what has
// changed since that of the distribution.
const (
	MariaDB    Product = "mariadb"
	NewMariaDB Product = "newmariadb"
	MySQL      Product = "mysql"
	TiDB       Product = "tidb" // which package tidb starts
)

// URLVariable names the environment variable that gives the shared server of tests
// another address. This package does not read it.
func (p Product) URLVariable() string {
	switch p {
	case MySQL:
		return "MILLPOND_TEST_MYSQL_URL"
	case TiDB:
		return "MILLPOND_TEST_TIDB_URL"
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
	switch product {
	case MySQL:
		return findMySQL(ctx)
	case NewMariaDB:
		return unpackMariaDB(ctx)
	}
	return findMariaDB(ctx)
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
