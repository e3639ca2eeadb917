package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

func TestPurge(t *testing.T) {
	onStores(t, func(t *testing.T, w *world) {
		w.complete(failure(charge, "u:1", "x"))
		w.fails(1, charge, "card refused")
		var all []purgeRecord
		args := []string{"purge", "--service", charge.Service, "--handler", charge.Handler, "--window", "7h", "-o", "json"}
		require.NoError(t, json.Unmarshal([]byte(w.run(exitOK, append(args, "--dry-run")...)), &all))
		require.Len(t, all, 1)
		require.Contains(t, all[0].Kept, "completed nothing for a day until recently")
		w.run(exitUsage, args...)
		args[6] = "1ns"
		w.run(exitUsage, append(args, "--dry-run")...)
		out := w.run(exitOK, append(args, "--silent", "--yes")...)
		require.NoError(t, json.Unmarshal([]byte(out), &all))
		require.Equal(t, stores.PurgeCompleted, all[0].Kind)
		require.Equal(t, 1, all[0].Purgeable)
		require.Contains(t, w.errB.String(), "1 rows deleted: completed")
		w.ok("purge", "--accept-stale", charge.String(), "--for", "2h")
		require.Contains(t, w.errB.String(), "go to quarantine for 2h")
		w.run(exitNothing, "purge", "--accept-stale", "no/body")
		for _, wrong := range [][]string{
			{"purge"},
			{"purge", "--service", "x"},
			{"purge", "--accept-stale", "x"},
			{"purge", "--accept-stale", "a/b", "--for", "-1s"},
			{"purge", "--service", "x", "--window", "2h", "--failed", "1h"},
		} {
			w.run(exitUsage, wrong...)
		}
	})
}

func TestPurgeOfAService(t *testing.T) {
	n := newSession(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "millpond.yaml")
	require.NoError(t, os.WriteFile(file, []byte("service: billing\nbroker: {url: \"memory://\"}\nstore: {url: \"sqlite://"+filepath.ToSlash(filepath.Join(dir, "test.db"))+"\"}\nretention: {window: 24h, audited: 48h}\n"), 0o600))
	n.ok("migrate", "up", "--store", "sqlite://"+filepath.ToSlash(filepath.Join(dir, "test.db")))
	require.Contains(t, n.ok("purge", "--config", file, "--yes"), "audited")
}

// What is given on the command line is stronger than the file.
func TestPurgeRateOnTopOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "millpond.yaml")
	require.NoError(t, os.WriteFile(file, []byte("service: billing\nbroker: {url: \"memory://\"}\nstore: {url: \"sqlite://x.db\"}\nretention: {window: 24h, rate: 7}\n"), 0o600))
	for rate, want := range map[int]int{0: 7, 100: 100} {
		c := purgeCall{program: &program{console: newConsole()}, file: file, rate: rate}
		config, err := c.config()
		require.NoError(t, err)
		require.Equal(t, want, config.Rate)
	}
	c := purgeCall{program: &program{console: newConsole()}, file: file, rate: -1}
	_, err := c.config()
	require.ErrorContains(t, err, "Rate")
}
