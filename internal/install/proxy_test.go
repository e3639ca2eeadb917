package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root       = "../.."
	modulePath = "github.com/millpond-go/millpond"
)

// newProxy makes a directory that the go command can use as GOPROXY: it has this tree as
// the only version of the module, and nothing else.
func newProxy(t *testing.T) (dir, version string) {
	t.Helper()
	// Another one each time, or the module cache would answer with an older tree.
	version = fmt.Sprintf("v0.0.0-tree.%d", time.Now().UnixNano())
	dir = t.TempDir()
	at := filepath.Join(dir, filepath.FromSlash(modulePath), "@v")
	if err := os.MkdirAll(at, 0o750); err != nil {
		t.Fatal(err)
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := zip.Create(&archive, module.Version{Path: modulePath, Version: version}, tracked(t)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": info, version + ".mod": goMod, version + ".zip": archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(at, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, version
}

// tracked returns the files of the tree that Git knows, as they are now: what a release
// of it would have.
func tracked(t *testing.T) []zip.File {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v\n%s", err, stderr(err))
	}
	var files []zip.File
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		f := file(name)
		if _, err := f.Lstat(); !errors.Is(err, fs.ErrNotExist) { // it may have been deleted since
			files = append(files, f)
		}
	}
	return files
}

func stderr(err error) []byte {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.Stderr
	}
	return nil
}

// file is one of the tree's, by its path from the root.
type file string

func (f file) Path() string { return string(f) }

func (f file) Lstat() (os.FileInfo, error) { return os.Lstat(f.onDisk()) }

func (f file) Open() (io.ReadCloser, error) { return os.Open(f.onDisk()) }

func (f file) onDisk() string { return filepath.Join(root, filepath.FromSlash(string(f))) }
