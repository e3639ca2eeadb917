package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

func TestCachedFillsOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", passableTempDir(t))
	complete := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "program"))
		return err == nil
	}
	var filled atomic.Int32
	fill := func(_ context.Context, dir string) error {
		filled.Add(1)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "program"), nil, 0o600)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			dir, err := host.Cached(t.Context(), "server-1", complete, fill)
			if err != nil || !complete(dir) {
				t.Errorf("got %q, %v", dir, err)
			}
		})
	}
	group.Wait()
	if n := filled.Load(); n != 1 {
		t.Errorf("it was filled %d times", n)
	}
}

// What could not be fetched, or not all of it, is tried again, and never used.
func TestCachedIsCompleteOrNothing(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", passableTempDir(t))
	broken := errors.New("no network")
	never := func(string) bool { return false }
	for name, fill := range map[string]func(context.Context, string) error{
		"fails": func(_ context.Context, dir string) error { return errors.Join(os.Mkdir(dir, 0o750), broken) },
		"lacks": func(_ context.Context, dir string) error { return os.Mkdir(dir, 0o750) },
	} {
		_, err := host.Cached(t.Context(), name, never, fill)
		if err == nil || (name == "fails") != errors.Is(err, broken) {
			t.Errorf("%s: the error is %v", name, err)
		}
		root, err := host.CacheDir()
		if err != nil {
			t.Fatal(err)
		}
		if entries, _ := filepath.Glob(filepath.Join(root, "fill-*")); len(entries) > 0 {
			t.Errorf("%s: left behind are %q", name, entries)
		}
		if _, err := os.Stat(filepath.Join(root, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the directory is there: %v", name, err)
		}
	}
}
