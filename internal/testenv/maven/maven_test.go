package maven

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOldJava: what is wrong is to be said before the server fails with a stack trace.
func TestOldJava(t *testing.T) {
	java := filepath.Join(t.TempDir(), "java")
	if err := os.WriteFile(java, []byte("#!/bin/sh\necho 'openjdk version \"11.0.20\" 2023-07-18' >&2\n"), 0o700); err != nil { // #nosec G306
		t.Fatal(err)
	}
	err := recent(t.Context(), java)
	if err == nil || !strings.Contains(err.Error(), "java in PATH is version 11: install 17 or later") {
		t.Errorf("the error is %v", err)
	}
}

func TestMissingJar(t *testing.T) {
	server, dir := Server{Artifact: "server_2.13", Version: "1.2.3"}, t.TempDir()
	if server.has(dir) {
		t.Error("an empty directory has the server")
	}
	if err := os.WriteFile(filepath.Join(dir, "server_2.13-1.2.3.jar"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !server.has(dir) {
		t.Error("the jar is not found")
	}
}
