package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/unstable"
)

// newMySQL is MySQL of Debian unstable: no release of Debian has it.
var newMySQL = unstable.Software{
	Name:     "mysql",
	Packages: []string{"mysql-server-core"},
	Omit:     []string{"perl*", "libperl*", "systemd*"},
	Program:  "usr/sbin/mysqld",
}

// findMySQL returns the programs of Debian unstable's MySQL or, where that is not to be
// had, of the one in PATH.
func findMySQL(ctx context.Context) (programs, error) {
	tree, err := newMySQL.Unpack(ctx)
	if errors.Is(err, unstable.ErrUnavailable) {
		if path, ok := look("mysqld"); ok && isMySQL(ctx, path) {
			return mysqlPrograms(host.Command{Path: path}, nil), nil
		}
		return programs{}, fmt.Errorf("mysql: no MySQL server found: install it (Ubuntu: sudo apt-get install mysql-server-core-8.0; macOS: brew install mysql), or set %s, which is enough for all tests that do not kill their server: %w", MySQL.URLVariable(), err)
	}
	if err != nil {
		return programs{}, fmt.Errorf("mysql: %w", err)
	}
	server, err := tree.Command("usr/sbin/mysqld")
	if err != nil {
		return programs{}, fmt.Errorf("mysql: %w", err)
	}
	// What the server was told when it was built lies elsewhere.
	return mysqlPrograms(server, []string{
		"--basedir=" + tree.Path("usr"),
		"--lc-messages-dir=" + tree.Path("usr/share/mysql"),
		"--character-sets-dir=" + tree.Path("usr/share/mysql/charsets"),
		"--plugin-dir=" + tree.Path("usr/lib/mysql/plugin"),
	}), nil
}

// isMySQL tells MySQL's mysqld from the link to MariaDB's server of the same name.
func isMySQL(ctx context.Context, path string) bool {
	output, err := exec.CommandContext(ctx, path, "--no-defaults", "--version").Output() // #nosec G204 -- found by us
	return err == nil && !bytes.Contains(output, []byte("MariaDB"))
}

func mysqlPrograms(server host.Command, options []string) programs {
	return programs{
		server:  server,
		options: options,
		initialize: func(dataDir string) host.Command {
			args := append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + dataDir}, options...)
			return with(server, append(args, asRoot()...)...)
		},
	}
}
