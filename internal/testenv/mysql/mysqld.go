package mysql

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// findMySQL returns the programs of MySQL.
func findMySQL(ctx context.Context) (programs, error) {
	if path, ok := look("mysqld"); ok && isMySQL(ctx, path) {
		return mysqlPrograms(program{path: path}), nil
	}
	return programs{}, fmt.Errorf("mysql: no MySQL server found: install it (macOS: brew install mysql), or set %s, which is enough for all tests that do not kill their server", MySQL.URLVariable())
}

// isMySQL tells MySQL's mysqld from the link to MariaDB's server of the same name.
func isMySQL(ctx context.Context, path string) bool {
	output, err := exec.CommandContext(ctx, path, "--no-defaults", "--version").Output() // #nosec G204 -- found by us
	return err == nil && !bytes.Contains(output, []byte("MariaDB"))
}

func mysqlPrograms(server program) programs {
	initialize := func(dataDir string) (program, []string) {
		return server, append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + dataDir}, asRoot()...)
	}
	return programs{server: server, initialize: initialize}
}
