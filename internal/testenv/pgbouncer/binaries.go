package pgbouncer

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/unstable"
)

// firstToPrepare is the minor version, of version 1, that knows about prepared statements
// in transaction pooling. Earlier ones refuse the setting.
const firstToPrepare = 21

// software is the newest PgBouncer.
var software = unstable.Software{
	Name:     "pgbouncer",
	Packages: []string{"pgbouncer"},
	Omit:     []string{"perl*", "libperl*", "postgresql-*", "systemd*"},
	Program:  "usr/sbin/pgbouncer",
}

// binary is a PgBouncer that can be started.
type binary struct {
	command host.Command
	minor   int // of version 1
}

// Install makes sure that a PgBouncer can be started with a configuration: it installs
// or fetches one if there is none. Start does the same; this is for who wants its error
// earlier.
func Install(ctx context.Context, config Config) error {
	_, err := find(ctx, config)
	return err
}

// find returns the installed PgBouncer, after installing the distribution's if there is
// none, or a newer one if that does not know what it must.
func find(ctx context.Context, config Config) (binary, error) {
	installed, err := look(ctx)
	if config.PreparedStatements && (err != nil || installed.minor < firstToPrepare) {
		return unpack(ctx)
	}
	if !errors.Is(err, exec.ErrNotFound) {
		return installed, err
	}
	err = host.Apt(ctx, "", "pgbouncer")
	if errors.Is(err, host.ErrCannotInstall) {
		return binary{}, errors.New("pgbouncer: no PgBouncer found: install it (Debian, Ubuntu: sudo apt-get install pgbouncer; macOS: brew install pgbouncer)")
	}
	if err != nil {
		return binary{}, fmt.Errorf("pgbouncer: %w", err)
	}
	return look(ctx)
}

// look finds the installed PgBouncer; the error is exec.ErrNotFound if there is none.
func look(ctx context.Context) (binary, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return ask(ctx, host.Command{Path: path})
		}
	}
	return binary{}, fmt.Errorf("pgbouncer: %w", exec.ErrNotFound)
}

// unpack fetches the one of Debian unstable.
func unpack(ctx context.Context) (binary, error) {
	tree, err := software.Unpack(ctx)
	if errors.Is(err, unstable.ErrUnavailable) {
		return binary{}, fmt.Errorf("pgbouncer: no PgBouncer of version 1.%d or later found: install it: %w", firstToPrepare, err)
	}
	if err != nil {
		return binary{}, fmt.Errorf("pgbouncer: %w", err)
	}
	command, err := tree.Command("usr/sbin/pgbouncer")
	if err != nil {
		return binary{}, fmt.Errorf("pgbouncer: %w", err)
	}
	return ask(ctx, command)
}

var versionText = regexp.MustCompile(`PgBouncer 1\.(\d+)`)

// ask asks a program for its version.
func ask(ctx context.Context, command host.Command) (binary, error) {
	args := slices.Concat(command.Args, []string{"--version"})
	output, err := exec.CommandContext(ctx, command.Path, args...).CombinedOutput() // #nosec G204 -- found by us
	if err != nil {
		return binary{}, fmt.Errorf("pgbouncer: %s: %w", command.Path, err)
	}
	match := versionText.FindSubmatch(output)
	if match == nil {
		return binary{}, fmt.Errorf("pgbouncer: %s does not tell its version: %q", command.Path, output)
	}
	minor, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return binary{}, fmt.Errorf("pgbouncer: %w", err)
	}
	return binary{command: command, minor: minor}, nil
}
