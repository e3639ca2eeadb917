package moto_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/moto"
)

// TestMissingPython: where nothing can be installed, the error says how to get it.
func TestMissingPython(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	says(t, moto.Install(t.Context()), "moto: Python 3.9 or later with pip is missing: install it")
}

// TestMissingPip: some distributions bring Python without it.
func TestMissingPip(t *testing.T) {
	bin := t.TempDir()
	python := "#!/bin/sh\ncase $1 in -c) echo cpython-000;; *) exit 1;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o700); err != nil {
		t.Fatal(err)
	}
	cache, err := os.MkdirTemp("/tmp", "millpond-moto-test-") //nolint:usetesting // root's servers must be able to pass it
	if err == nil {
		err = os.Chmod(cache, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(cache) })
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", bin)
	says(t, moto.Install(t.Context()), "moto: Python 3.9 or later with pip is missing: install it")
}

func says(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), words) {
		t.Errorf("the error does not say %q: %v", words, err)
	}
}

func TestStartKeepsNothing(t *testing.T) {
	server, err := moto.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(server.URL(), "http://127.0.0.1:") {
		t.Errorf("it is at %s", server.URL())
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(server.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Error("its directory is still there")
	}
}
