package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ErrCannotInstall: this machine offers no way to install packages without asking.
var ErrCannotInstall = errors.New("host: packages cannot be installed from here (it takes apt-get, root or sudo without a password, and MILLPOND_TEST_INSTALL other than off)")

// installVariable refuses every installation if it is "off". The first line of make test
// says so: .ci/servers.
const installVariable = "MILLPOND_TEST_INSTALL"

const installTimeout = 5 * time.Minute

// aptScript installs "$@". The policy file keeps packages from starting the services
// that they bring: the tests start their own.
const aptScript = `
set -eu
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi
install() { apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends --no-remove "$@"; }
apt-get -qq -o DPkg::Lock::Timeout=120 update
`

// Apt installs packages of the distribution without starting their services. It fails
// where that would remove others.
// prepare is shell text to be run before, in which "install NAME" installs a package;
// it may be empty. Several processes may call it at once. It returns ErrCannotInstall,
// or an error with the end of apt's output.
func Apt(ctx context.Context, prepare string, packages ...string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getenv(installVariable) == "off" {
		return ErrCannotInstall
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	root, err := Root()
	if err != nil {
		return err
	}
	lock, err := AcquireLock(ctx, filepath.Join(root, "install.lock"), Exclusive)
	if err != nil {
		return err
	}
	defer lock.Release()
	command := Command{
		Path: "/bin/sh",
		Args: append([]string{"-c", aptScript + prepare + "\ninstall \"$@\"\n", "sh"}, packages...),
		Dir:  "/",
		Env:  append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin:"+filepath.Dir(apt)),
	}
	if os.Geteuid() != 0 {
		sudo, err := exec.LookPath("sudo")
		if err != nil || Run(ctx, Command{Path: sudo, Args: []string{"-n", "true"}}) != nil {
			return ErrCannotInstall
		}
		command.Path, command.Args = sudo, append([]string{"-n", command.Path}, command.Args...)
	}
	if err := Run(ctx, command); err != nil {
		return fmt.Errorf("host: install %v: %w", packages, err)
	}
	return nil
}
