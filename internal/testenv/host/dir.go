package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Dir is a directory for one server. It is locked for as long as its owner lives;
// what an owner that was killed has left behind is removed by the next NewDir.
type Dir struct {
	Path string
	lock *FileLock
}

const (
	runPrefix = "run-"
	lockName  = "lock"
)

// NewDir makes a directory below [Root] that other accounts can pass through but
// not list.
func NewDir(ctx context.Context, name string) (*Dir, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	// Under this lock there are no directories that are made but not yet locked.
	rootLock, err := AcquireLock(ctx, filepath.Join(root, lockName), Exclusive)
	if err != nil {
		return nil, err
	}
	defer rootLock.Release()
	sweep(root)
	path, err := os.MkdirTemp(root, runPrefix+name+"-")
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	if err := os.Chmod(path, 0o711); err != nil { // #nosec G302 -- the server's account must pass
		return nil, fmt.Errorf("host: %w", err)
	}
	lock, err := TryLock(filepath.Join(path, lockName), Exclusive)
	if err != nil {
		return nil, err
	}
	return &Dir{Path: path, lock: lock}, nil
}

// Remove deletes the directory and all in it.
func (d *Dir) Remove() error {
	return errors.Join(os.RemoveAll(d.Path), d.lock.Release())
}

// sweep removes directories without an owner. A server that still runs in one (it
// can where there is no orphan signal) loses its files and ends by itself.
func sweep(root string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), runPrefix) {
			continue
		}
		path := filepath.Join(root, entry.Name())
		lock, err := TryLock(filepath.Join(path, lockName), Exclusive)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		_ = lock.Release()
	}
}

// Root returns the directory of this user under which everything lies. It is made
// if it is missing, in the system's directory for temporary files.
func Root() (string, error) {
	uid := os.Geteuid()
	temp := os.TempDir()
	if uid == 0 && !passable(temp) {
		temp = "/tmp" // the servers run under another account
	}
	root := filepath.Join(temp, "millpond-testenv-"+strconv.Itoa(uid))
	if err := os.Mkdir(root, 0o711); err != nil && !errors.Is(err, os.ErrExist) { // #nosec G301
		return "", fmt.Errorf("host: %w", err)
	}
	info, err := os.Lstat(root)
	if err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(stat.Uid) != uid {
		return "", fmt.Errorf("host: %s is not a directory of ours: remove it", root)
	}
	if err := os.Chmod(root, 0o711); err != nil { // #nosec G302 -- whatever the umask was
		return "", fmt.Errorf("host: %w", err)
	}
	return root, nil
}

// passable reports whether every account can pass through a directory.
func passable(path string) bool {
	for path = filepath.Clean(path); ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
	}
}
