package host_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

func TestInstallationIsRefused(t *testing.T) {
	t.Setenv("MILLPOND_TEST_INSTALL", "off")
	if err := host.Apt(t.Context(), "", "no-such-package"); !errors.Is(err, host.ErrCannotInstall) {
		t.Errorf("got %v", err)
	}
}

// The first line of make test names every package that CONTRIBUTING.md says is installed.
func TestPackagesAreNamedBeforeTheyAreInstalled(t *testing.T) {
	const root = "../../.."
	contributing, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	var packages []string
	for _, found := range regexp.MustCompile(`\| packages? ([a-z0-9-]+)(?: and ([a-z0-9-]+))? \|`).FindAllStringSubmatch(string(contributing), -1) {
		packages = append(packages, found[1:]...)
	}
	if len(packages) < 10 {
		t.Fatalf("CONTRIBUTING.md names only %q", packages)
	}
	for refused, want := range map[string]string{"": "MILLPOND_TEST_INSTALL=off make test", "off": "not installed"} {
		line := servers(t, filepath.Join(root, ".ci/servers"), refused)
		for _, p := range append(packages, want) {
			if !strings.Contains(line, p) {
				t.Errorf("%q does not name %s", line, p)
			}
		}
		if strings.Count(line, "\n") != 1 {
			t.Errorf("%q is not one line", line)
		}
	}
}

// servers runs the script where nothing but a root with apt-get is there.
func servers(t *testing.T, script, refused string) string {
	t.Helper()
	bin := t.TempDir()
	for name, text := range map[string]string{"apt-get": "", "id": "echo 0"} {
		// #nosec G306 -- a program
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bash, script)
	cmd.Env = []string{"PATH=" + bin, "MILLPOND_TEST_INSTALL=" + refused, "MILLPOND_TEST_ROOT=" + t.TempDir()}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
