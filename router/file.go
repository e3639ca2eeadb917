package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// maxFile is far larger than any configuration, and small enough to be read at once.
const maxFile = 64 << 10

// readFile reads a configuration. It refuses pipes and devices, which may never end.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name) // first, because opening a pipe waits
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("router: %w: write one with: millpond config init > %s", err, name)
	}
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("router: %s is not a file but %s: name a file", name, nature(info.Mode()))
	}
	file, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1)) // its size may differ from what Stat says
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("router: %s has more than %d bytes: is it the right file?", name, maxFile)
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors begin a file with it
	if line, what := unlike(text); what != "" {
		return nil, fmt.Errorf("router: %s:%d: %s: is it the right file?", name, line, what)
	}
	return text, nil
}

func nature(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

const (
	maxBlankLines = 1000
	maxBrackets   = 4000
)

// unlike finds content that no configuration has and that takes the YAML parser quadratic time.
func unlike(text []byte) (line int, what string) {
	blank, brackets := 0, 0
	for row := range bytes.Lines(text) {
		line++
		if blank++; len(bytes.TrimSpace(row)) > 0 {
			blank = 0
		}
		brackets += bytes.Count(row, []byte("[")) + bytes.Count(row, []byte("{"))
		switch {
		case blank > maxBlankLines:
			return line, fmt.Sprintf("there are more than %d blank lines in a row", maxBlankLines)
		case brackets > maxBrackets:
			return line, fmt.Sprintf("there are more than %d brackets", maxBrackets)
		}
	}
	return 0, ""
}
