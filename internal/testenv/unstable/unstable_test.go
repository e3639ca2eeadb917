package unstable

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

// small is quickly fetched: a program in C and what it needs.
var small = Software{
	Name: "hello", Packages: []string{"hello"}, Omit: []string{"gcc-*-base"}, Program: "usr/bin/hello",
	Prepare: func(t *Tree) error { return t.Wrap("usr/bin/hello", packageList) },
}

func cacheIn(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// As any user has it; root's tests would go to the system's otherwise.
	for path := dir; len(path) > len(os.TempDir()); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil { // #nosec G302
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", dir)
	return dir
}

func TestUnpackOnceForAll(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	cache := cacheIn(t)
	trees := make([]*Tree, 4)
	var group sync.WaitGroup
	for i := range trees {
		group.Go(func() {
			tree, err := small.Unpack(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			trees[i] = tree
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, tree := range trees {
		if tree.root != trees[0].root || !strings.HasPrefix(tree.root, cache) {
			t.Errorf("a tree is at %s, the first at %s", tree.root, trees[0].root)
		}
	}
	tree := trees[0]
	if tree.Version("hello") == "" || tree.Version("libc6") == "" || tree.Version("gcc-16-base") != "" || tree.Version("ell") != "" {
		b, err := os.ReadFile(tree.Path(packageList))
		t.Errorf("the packages are %q (%v)", b, err)
	}

	out := filepath.Join(t.TempDir(), "out")
	// By itself, because it is wrapped, and through the loader.
	byLoader, err := tree.Command("usr/bin/hello.real", "--greeting=it's two")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []host.Command{{Path: tree.Path("usr/bin/hello"), Args: []string{"--greeting=it's one"}}, byLoader} {
		command.Log, command.Dir = out, "/"
		process, err := host.StartProcess(command)
		if err == nil {
			err = process.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(out); string(b) != "it's one\nit's two\n" { // #nosec G304
		t.Errorf("the program says %q (%v)", b, err)
	}
}

func TestUnpackLeavesNothingWhenItFails(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	cache := cacheIn(t)
	broken := small
	broken.Program = "usr/bin/no-such"
	if _, err := broken.Unpack(t.Context()); err == nil || !strings.Contains(err.Error(), "usr/bin/no-such") {
		t.Errorf("the error is %v", err)
	}
	dirs, err := filepath.Glob(filepath.Join(cache, "*", "unstable-*"))
	if err != nil || slices.ContainsFunc(dirs, func(dir string) bool { return !strings.HasSuffix(dir, ".lock") }) {
		t.Errorf("%q is there (%v)", dirs, err)
	}
}

func TestNoMirror(t *testing.T) {
	cacheIn(t)
	t.Setenv("PATH", t.TempDir())
	if _, err := small.Unpack(t.Context()); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), MirrorVariable) {
		t.Errorf("without apt-get: %v", err)
	}
}

func TestParseTargets(t *testing.T) {
	got := parseTargets(`http://mirror/debian/ bookworm main
http://mirror/debian/ bookworm contrib
http://mirror/debian/ bookworm-updates main
http://mirror/debian-security/ bookworm-security main
mirror+file:/etc/apt/mirrors/debian.list stable main
https://packages.example.org/apt/ any main
`, "bookworm")
	if want := []string{"http://mirror/debian/", "mirror+file:/etc/apt/mirrors/debian.list"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
