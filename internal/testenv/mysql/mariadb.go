package mysql

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/unstable"
)

// mariadbPackages have the programs alone: no service, no account, no data.
var mariadbPackages = []string{"mariadb-server-core", "mariadb-client-core"}

// newMariaDB is MariaDB of Debian unstable.
var newMariaDB = unstable.Software{
	Name:     "mariadb",
	Packages: mariadbPackages,
	Omit:     []string{"perl*", "libperl*", "systemd*"},
	Program:  "usr/sbin/mariadbd",
	Prepare: func(t *unstable.Tree) error { // what the script runs
		return t.Wrap("usr/sbin/mariadbd", "usr/bin/my_print_defaults", "usr/bin/resolveip")
	},
}

// findMariaDB returns the programs of the MariaDB that is installed, or that the
// distribution has, or else, where nothing can be installed, of Debian unstable's.
func findMariaDB(ctx context.Context) (programs, error) {
	if found, ok := lookMariaDB(); ok {
		return found, nil
	}
	err := host.Apt(ctx, "", mariadbPackages...)
	if err == nil {
		if found, ok := lookMariaDB(); ok {
			return found, nil
		}
		err = fmt.Errorf("the packages %q are installed, but mariadbd, mariadb-install-db and my_print_defaults are neither in PATH nor in /usr/sbin and /usr/bin", mariadbPackages)
	}
	found, unpackErr := unpackMariaDB(ctx)
	switch {
	case unpackErr == nil:
		return found, nil
	case errors.Is(err, host.ErrCannotInstall) && errors.Is(unpackErr, unstable.ErrUnavailable):
		return programs{}, fmt.Errorf("mysql: no MariaDB server found: install it (Debian, Ubuntu: sudo apt-get install mariadb-server; macOS: brew install mariadb), or set %s, which is enough for all tests that do not kill their server", MariaDB.URLVariable())
	}
	return programs{}, fmt.Errorf("mysql: %w", errors.Join(err, unpackErr))
}

func lookMariaDB() (programs, bool) {
	server, serverOK := look("mariadbd")
	script, scriptOK := look("mariadb-install-db")
	_, readerOK := look("my_print_defaults") // which the script needs, even without defaults
	return mariadbPrograms(server, script, nil), serverOK && scriptOK && readerOK
}

func unpackMariaDB(ctx context.Context) (programs, error) {
	tree, err := newMariaDB.Unpack(ctx)
	if err != nil {
		return programs{}, fmt.Errorf("mysql: %w", err)
	}
	// What the server was told when it was built lies elsewhere.
	return mariadbPrograms(tree.Path("usr/sbin/mariadbd"), tree.Path("usr/bin/mariadb-install-db"), []string{
		"--basedir=" + tree.Path("usr"),
		"--lc-messages-dir=" + tree.Path("usr/share/mysql"),
		"--character-sets-dir=" + tree.Path("usr/share/mysql/charsets"),
		"--plugin-dir=" + tree.Path("usr/lib/mysql/plugin"),
	}), nil
}

func mariadbPrograms(server, script string, options []string) programs {
	return programs{
		server:  host.Command{Path: server},
		options: options,
		initialize: func(dataDir string) host.Command {
			args := append([]string{
				"--no-defaults", "--datadir=" + dataDir, "--skip-test-db",
				"--auth-root-authentication-method=normal", // else root is let in through the socket only
				"--tmpdir=" + filepath.Dir(dataDir),        // see place
			}, options...)
			return with(host.Command{Path: script}, append(args, asRoot()...)...)
		},
	}
}
