package unstable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt is an apt-get that knows unstable only, and keeps everything below dir.
type apt struct{ dir, program string }

// The validity date is not looked at, because mirrors may be older than it. Signatures are.
// The hooks that are cleared are those of the system, which clean up its directories.
const aptConfiguration = `#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "%[1]s/state";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
APT::Sandbox::User "";
APT::Install-Recommends "false";
APT::Get::List-Cleanup "false";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::Retries "3";
`

// newApt makes an apt-get with an empty status below dir, from the first of the mirrors
// that has unstable.
func newApt(ctx context.Context, dir string, mirrors []string) (*apt, error) {
	program, err := exec.LookPath("apt-get")
	if err != nil {
		return nil, ErrUnavailable
	}
	a := &apt{dir: dir, program: program}
	for _, sub := range []string{"state/lists/partial", "cache/archives/partial", "debs"} {
		if err := os.MkdirAll(a.path(sub), 0o700); err != nil {
			return nil, err
		}
	}
	err = errors.Join(
		os.WriteFile(a.path("status"), nil, 0o600),
		os.WriteFile(a.path("apt.conf"), fmt.Appendf(nil, aptConfiguration, dir), 0o600),
	)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, mirror := range mirrors {
		source := fmt.Sprintf("deb [signed-by=%s] %s unstable main\n", keyring, mirror)
		if err := os.WriteFile(a.path("sources.list"), []byte(source), 0o600); err != nil {
			return nil, err
		}
		err := a.run(ctx, "-o", "APT::Update::Error-Mode=any", "update")
		if err == nil {
			return a, nil
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", mirror, err))
	}
	return nil, failed
}

func (a *apt) path(elem string) string { return filepath.Join(a.dir, elem) }

func (a *apt) command(args ...string) host.Command {
	return host.Command{
		Path: a.program,
		Args: append([]string{"-c", a.path("apt.conf"), "-qq"}, args...),
		Dir:  a.path("debs"), // where "apt-get download" puts them
		Env:  append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"),
	}
}

func (a *apt) run(ctx context.Context, args ...string) error {
	return host.Run(ctx, a.command(args...))
}

// closure returns "name=version" of the packages and of all that they depend on, but for
// those whose names match a pattern.
func (a *apt) closure(ctx context.Context, packages, omit []string) ([]string, error) {
	c := a.command(append([]string{"--simulate", "install"}, packages...)...)
	cmd := exec.CommandContext(ctx, c.Path, c.Args...) // #nosec G204 -- apt-get
	cmd.Dir, cmd.Env = c.Dir, c.Env
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("resolve %q: %w", packages, err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		// Inst libc6 (2.41-12 Debian:unstable [amd64])
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "Inst" {
			continue
		}
		name, version := fields[1], strings.TrimPrefix(fields[2], "(")
		if !slices.ContainsFunc(omit, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }) {
			found = append(found, name+"="+version)
		}
	}
	return found, nil
}

// download fetches packages and returns their files.
func (a *apt) download(ctx context.Context, packages []string) ([]string, error) {
	if err := a.run(ctx, append([]string{"download"}, packages...)...); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(a.path("debs/*.deb"))
	if err == nil && len(debs) != len(packages) {
		err = fmt.Errorf("apt-get has fetched %d of %d packages", len(debs), len(packages))
	}
	return debs, err
}
