package unstable

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/millpond-go/millpond/internal/testenv/host"
)

const packageList = "packages"

// Tree is a directory with unpacked packages. Do not change it, but in Prepare.
type Tree struct{ root string }

// Path returns the absolute path of a file of the tree.
func (t *Tree) Path(elem ...string) string {
	return filepath.Join(append([]string{t.root}, elem...)...)
}

// Glob returns the one path that the pattern of filepath.Match finds in the tree.
func (t *Tree) Glob(pattern string) (string, error) {
	found, err := filepath.Glob(t.Path(pattern))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("unstable: %d files in %s match %s: remove that directory, to fetch it again", len(found), t.root, pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// Version returns the version of an unpacked package, as Debian writes it; "" if the tree
// does not have it.
func (t *Tree) Version(name string) string {
	b, err := os.ReadFile(t.Path(packageList))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if version, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSpace(version)
		}
	}
	return ""
}

// Command returns a command that runs a program of the tree with the tree's libraries.
// program is a path in the tree. It has no directory, environment and log yet.
func (t *Tree) Command(program string, args ...string) (host.Command, error) {
	path := t.Path(program)
	loader, libraries, err := t.loader(path)
	if err != nil {
		return host.Command{}, err
	}
	return host.Command{Path: loader, Args: append([]string{"--argv0", path, "--library-path", libraries, path}, args...)}, nil
}

// Wrap makes programs of the tree start by their paths, for servers that start others:
// each ELF program that one of the patterns finds becomes a shell script of its name that
// runs it with the tree's libraries. Other files are left alone. It is for Prepare.
func (t *Tree) Wrap(patterns ...string) error {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(t.Path(pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := t.wrap(path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tree) wrap(path string) error {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	loader, libraries, err := t.loader(path)
	if errors.Is(err, errNoProgram) {
		return nil
	}
	if err != nil {
		return err
	}
	moved := path + ".real"
	if err := os.Rename(path, moved); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' --argv0 \"$0\" --library-path '%s' '%s' \"$@\"\n", loader, libraries, moved)
	return os.WriteFile(path, []byte(script), 0o755) // #nosec G306 -- a program
}

var errNoProgram = errors.New("not an ELF program with a loader")

// loader returns the loader that an ELF program asks for, in the tree, and the directories
// with its libraries.
func (t *Tree) loader(path string) (loader, libraries string, err error) {
	file, err := os.Open(path) // #nosec G304 -- in the tree
	if err != nil {
		return "", "", fmt.Errorf("unstable: %w", err)
	}
	defer file.Close()
	binary, err := elf.NewFile(file)
	if err != nil {
		return "", "", fmt.Errorf("unstable: %s: %w", path, errNoProgram)
	}
	for _, segment := range binary.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(segment.Open())
		if err != nil {
			return "", "", fmt.Errorf("unstable: %s: %w", path, err)
		}
		// /lib64/ld-…: in the packages it is below usr.
		loader, err = filepath.EvalSymlinks(t.Path("usr", string(bytes.TrimRight(name, "\x00"))))
		if err != nil {
			return "", "", fmt.Errorf("unstable: the loader of %s: %w", path, err)
		}
		return loader, filepath.Dir(loader), nil
	}
	return "", "", fmt.Errorf("unstable: %s: %w", path, errNoProgram)
}
