package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// debianPrepare keeps Debian's package from creating a cluster of its own.
const debianPrepare = `
install postgresql-common
sed -ri 's/^#?create_main_cluster .*$/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
`

// Install makes sure that a server can be started: it installs the distribution's if
// there is none. Start does the same; this is for who wants its error earlier.
func Install(ctx context.Context) error {
	_, err := binaries(ctx)
	return err
}

// binaries returns the directory of the server's programs, after installing them if
// they are missing.
func binaries(ctx context.Context) (string, error) {
	dir, ok := findBinaries()
	if ok {
		return dir, nil
	}
	err := host.Apt(ctx, debianPrepare, "postgresql")
	if errors.Is(err, host.ErrCannotInstall) {
		return "", fmt.Errorf("postgres: no PostgreSQL server found: install it (Debian, Ubuntu: sudo apt-get install postgresql; macOS: brew install postgresql), or set %s, which is enough for all tests that do not kill their server", URLVariable)
	}
	if err != nil {
		return "", fmt.Errorf("postgres: %w", err)
	}
	if dir, ok = findBinaries(); !ok {
		return "", errors.New("postgres: the package postgresql is installed, but its programs are not below /usr/lib/postgresql")
	}
	return dir, nil
}

// findBinaries looks where Debian puts them, newest version first, then in PATH.
func findBinaries() (string, bool) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Compare(majorVersion(b), majorVersion(a)) })
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for _, dir := range dirs {
		if executable(filepath.Join(dir, "postgres")) && executable(filepath.Join(dir, "initdb")) {
			return dir, true
		}
	}
	return "", false
}

func majorVersion(bin string) int {
	version, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	return version
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
