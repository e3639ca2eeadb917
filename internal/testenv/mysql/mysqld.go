package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/host"
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
	output, err := host.Output(ctx, program{path: path}.command("/", "--version"))
	return err == nil && !strings.Contains(string(output), "MariaDB")
}

func mysqlPrograms(server program) programs {
	initialize := func(dataDir string) (program, []string) {
		return server, append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + dataDir}, asRoot()...)
	}
	return programs{server: server, initialize: initialize}
}
