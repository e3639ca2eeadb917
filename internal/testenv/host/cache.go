package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Cached returns a directory below [CacheDir] that holds what fill has put there, once
// for this user and name: a program that no package of the distribution brings. It appears
// with everything in it or not at all. complete says whether a directory holds what is
// wanted; one that does not is filled anew. Several processes may call it at once: one
// fills, the others wait.
func Cached(ctx context.Context, name string, complete func(dir string) bool, fill func(ctx context.Context, dir string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if complete(dir) {
		return dir, nil
	}
	lock, err := AcquireLock(ctx, dir+".lock", Exclusive)
	if err != nil {
		return "", err
	}
	defer lock.Release()
	if complete(dir) {
		return dir, nil
	}
	work, err := os.MkdirTemp(cache, "fill-")
	if err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	defer os.RemoveAll(work)
	filled := filepath.Join(work, name)
	if err := fill(ctx, filled); err != nil {
		return "", err
	}
	if !complete(filled) {
		return "", fmt.Errorf("host: what was fetched for %s is not complete", name)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	if err := os.Rename(filled, dir); err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	return dir, nil
}
