package unstable

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// MirrorVariable names the environment variable with the address of a mirror of Debian.
// It is for systems that have apt-get but are not Debian, and goes before the system's.
const MirrorVariable = "MILLPOND_TEST_DEBIAN_MIRROR"

// mirrors returns where Debian may be fetched from: the mirror that the variable names, or
// what this system fetches itself from.
func mirrors(ctx context.Context) ([]string, error) {
	if mirror := os.Getenv(MirrorVariable); mirror != "" {
		return []string{mirror}, needKeyring(ctx)
	}
	release := osRelease()
	if release["ID"] != "debian" {
		return nil, ErrUnavailable
	}
	program, err := exec.LookPath("apt-get")
	if err != nil {
		return nil, ErrUnavailable
	}
	out, err := exec.CommandContext(ctx, program, "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").Output() // #nosec G204
	if err != nil {
		return nil, fmt.Errorf("ask apt-get for its sources: %w", err)
	}
	found := parseTargets(string(out), release["VERSION_CODENAME"])
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: none of its sources is a mirror of Debian", ErrUnavailable)
	}
	return found, needKeyring(ctx)
}

// parseTargets picks the repositories that offer the release itself: mirrors of Debian and
// perhaps others, which have no unstable that is signed by Debian.
func parseTargets(targets, codename string) []string {
	releases := []string{codename, "stable", "oldstable", "testing", "sid", "unstable"}
	var found []string
	for line := range strings.Lines(targets) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "main" || fields[1] == "" || !slices.Contains(releases, fields[1]) {
			continue
		}
		if !slices.Contains(found, fields[0]) {
			found = append(found, fields[0])
		}
	}
	return found
}

// needKeyring installs Debian's keys where they are missing, which they are not on Debian.
func needKeyring(ctx context.Context) error {
	if _, err := os.Stat(keyring); err == nil {
		return nil
	}
	return host.Apt(ctx, "", "debian-archive-keyring")
}

func osRelease() map[string]string {
	b, _ := os.ReadFile("/etc/os-release")
	values := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			values[name] = strings.Trim(value, `"'`)
		}
	}
	return values
}
