//go:build unix

package router_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/router"
)

// What is no file of a configuration is refused at once, however it is made.
func TestFilesThatAreNoConfigurationAreRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	large := filepath.Join(dir, "large.yaml")
	require.NoError(t, os.WriteFile(large, []byte(strings.Repeat("# \n", 30_000)), 0o600))
	for name, says := range map[string]string{
		"/dev/zero": "zero is not a file but a device",
		pipe:        "pipe.yaml is not a file but a pipe",
		dir:         "is not a file but a directory",
		large:       "large.yaml has more than 65536 bytes: is it the right file?",
	} {
		answer := make(chan error, 1)
		go func() {
			_, err := router.LoadConfig(name)
			answer <- err
		}()
		select {
		case err := <-answer:
			require.ErrorContains(t, err, says)
		case <-time.After(10 * time.Second):
			t.Fatalf("%s is still being read", name)
		}
	}
	for name, text := range map[string]string{
		"blank lines": "service: |\n" + strings.Repeat("\n", 60_000),
		"white lines": "service: |\n" + strings.Repeat(" \n", 30_000),
		"brackets":    "service: " + strings.Repeat("[", 60_000),
		"more space":  "service: " + strings.Repeat("[ ", 30_000),
	} {
		begun := time.Now()
		_, err := read(text)
		require.ErrorContains(t, err, "is it the right file?", name)
		require.Less(t, time.Since(begun), time.Second, name)
	}
	_, err := read(valid + strings.Repeat("\n", 500) + "drain_timeout: 0s\n")
	require.ErrorContains(t, err, "millpond.yaml:504: drain_timeout", "lines are still counted")
}
