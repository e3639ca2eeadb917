package host

import (
	"fmt"
	"os"
	"path/filepath"
)

// CacheDir returns the directory for what is fetched once and kept, which is made if it
// is missing: below this user's cache directory or, for root, below the system's if other
// accounts cannot reach root's, because some servers must not run as root.
func CacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	if os.Geteuid() == 0 && !passable(nearest(cache)) {
		cache = "/var/cache"
	}
	dir := filepath.Join(cache, "millpond-testenv")
	if err := os.MkdirAll(dir, 0o755); err != nil { // #nosec G301 -- other accounts read it
		return "", fmt.Errorf("host: %w", err)
	}
	return dir, nil
}

// nearest returns the path, or the nearest directory above it that exists.
func nearest(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}
