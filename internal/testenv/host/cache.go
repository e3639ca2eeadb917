package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Cached returns a directory below the user's cache directory that holds what fill has
// put there, once for this user and name: programs that no package of the distribution
// brings. It appears with everything in it or not at all. complete says whether a
// directory holds what is wanted; one that does not is filled anew. Several processes may
// call it at once: one fills, the others wait.
func Cached(ctx context.Context, name string, complete func(dir string) bool, fill func(ctx context.Context, dir string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	root := filepath.Join(cache, "millpond-testenv")
	dir := filepath.Join(root, name)
	if complete(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o750); err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	lock, err := AcquireLock(ctx, dir+".lock", Exclusive)
	if err != nil {
		return "", err
	}
	defer lock.Release()
	if complete(dir) {
		return dir, nil
	}
	work, err := os.MkdirTemp(root, "fill-")
	if err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	defer os.RemoveAll(work)
	filled := filepath.Join(work, name)
	if err := fill(ctx, filled); err != nil {
		return "", err
	}
	if !complete(filled) {
		return "", fmt.Errorf("host: what was fetched for %s is not complete: remove %s and try again", name, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	if err := os.Rename(filled, dir); err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	return dir, nil
}
