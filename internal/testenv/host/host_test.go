package host_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock := func(mode host.LockMode) *host.FileLock {
		t.Helper()
		l, err := host.TryLock(path, mode)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a, b := lock(host.Shared), lock(host.Shared)
	if _, err := host.TryLock(path, host.Exclusive); !errors.Is(err, host.ErrLocked) {
		t.Errorf("exclusive beside shared: %v", err)
	}
	if err := errors.Join(a.Release(), b.Release()); err != nil {
		t.Fatal(err)
	}
	exclusive := lock(host.Exclusive)
	if _, err := host.TryLock(path, host.Shared); !errors.Is(err, host.ErrLocked) {
		t.Errorf("shared beside exclusive: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := host.AcquireLock(ctx, path, host.Shared); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a lock that is not released: %v", err)
	}
	acquired := make(chan error)
	go func() {
		l, err := host.AcquireLock(t.Context(), path, host.Shared)
		if err == nil {
			err = l.Release()
		}
		acquired <- err
	}()
	if err := exclusive.Release(); err != nil {
		t.Fatal(err)
	}
	if err := <-acquired; err != nil {
		t.Error(err)
	}
}

func TestFreePort(t *testing.T) {
	port, err := host.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
}

// What a killed owner leaves behind goes; what has an owner stays.
func TestNewDirSweeps(t *testing.T) {
	t.Setenv("TMPDIR", passableTempDir(t))
	kept, err := host.NewDir(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	root, err := host.Root()
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(root, "run-left-behind")
	other := filepath.Join(root, "shared-other")
	for _, dir := range []string{filepath.Join(left, "data"), other} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	second, err := host.NewDir(t.Context(), "second")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Error("a directory without an owner is still there")
	}
	for _, path := range []string{kept.Path, other} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(kept.Remove(), second.Remove()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(kept.Path); !errors.Is(err, os.ErrNotExist) {
		t.Error("a removed directory is still there")
	}
}

// passableTempDir returns a directory that, unlike t.TempDir's, root's servers may pass.
func passableTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "millpond-host-test-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRootAvoidsClosedDirectories(t *testing.T) {
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", closed)
	root, err := host.Root()
	if err != nil {
		t.Fatal(err)
	}
	if inside := filepath.Dir(root) == closed; inside != (os.Geteuid() != 0) {
		t.Errorf("the root is %s for user %d", root, os.Geteuid())
	}
}

func TestRootRefusesWhatIsNotOurs(t *testing.T) {
	temp := passableTempDir(t)
	t.Setenv("TMPDIR", temp)
	path := filepath.Join(temp, "millpond-testenv-"+strconv.Itoa(os.Geteuid()))
	if err := os.Symlink("/", path); err != nil {
		t.Fatal(err)
	}
	if root, err := host.Root(); err == nil {
		t.Errorf("a symbolic link to / was taken as the root: %s", root)
	}
}

func TestUnprivileged(t *testing.T) {
	account, err := host.Unprivileged("no-such-account", "nobody")
	if os.Geteuid() != 0 {
		if account != nil || err != nil {
			t.Errorf("not being root, got %v and %v", account, err)
		}
		return
	}
	if err != nil || account.Name != "nobody" || account.UID == 0 {
		t.Errorf("got %v and %v", account, err)
	}
	if _, err := host.Unprivileged("no-such-account"); err == nil {
		t.Error("an account that does not exist was found")
	}
}
