package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

// Data is created once for each program and its arguments, and each directory is a copy of its
// own that nobody else may read.
func TestFromTemplate(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", passableTempDir(t))
	work := t.TempDir()
	create := func(what string) func(string) host.Command {
		return func(dir string) host.Command {
			return host.Command{Path: "/bin/sh", Args: []string{"-c", `echo again >>created; mkdir "$0/deeper"; echo "$1" >"$0/deeper/data"`, dir, what}}
		}
	}
	for _, c := range []struct{ dir, what string }{{"one", "this"}, {"two", "this"}, {"three", "that"}} {
		dir := filepath.Join(work, c.dir)
		if err := host.FromTemplate(t.Context(), "data", dir, create(c.what)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "deeper", "data")
		if got, err := os.ReadFile(file); err != nil || string(got) != c.what+"\n" {
			t.Errorf("%s has %q, %v", c.dir, got, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", c.dir, info.Mode(), err)
		}
		if err := os.WriteFile(file, []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if created, err := os.ReadFile(filepath.Join(work, "created")); err != nil || string(created) != strings.Repeat("again\n", 2) {
		t.Errorf("created: %q, %v", created, err)
	}
	if err := host.FromTemplate(t.Context(), "data", filepath.Join(work, "one"), create("this")); err == nil {
		t.Error("a directory that is there was changed")
	}
}
