// Package doccheck keeps the documents honest: what they name exists, their links
// lead somewhere, their Go code is code that is compiled and tested, and their commands say which
// test runs them.
package doccheck

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Problem is one sentence about one line.
type Problem struct {
	File string
	Line int
	Text string
}

func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text) }

// Check reads every document and source file below the root of tree and returns
// what is wrong, in order of files and lines. An error means that it could not read.
func Check(tree fs.FS) ([]Problem, error) {
	texts, err := readTexts(tree)
	if err != nil {
		return nil, err
	}
	var problems []Problem
	code, problems := parseCode(texts)
	problems = append(problems, checkErrors(texts)...)
	problems = append(problems, checkContract(texts)...)
	var docs []*document
	for name, text := range texts {
		problems = append(problems, checkWords(name, text)...)
		problems = append(problems, checkLength(name, text)...)
		if path.Ext(name) == ".md" {
			docs = append(docs, parseDocument(name, text))
		}
	}
	for _, doc := range docs {
		problems = append(problems, checkLinks(tree, docs, doc)...)
		problems = append(problems, checkNames(code, doc)...)
		problems = append(problems, checkSnippets(code, doc)...)
		problems = append(problems, checkCommands(code, texts, doc)...)
	}
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Text, b.Text))
	})
	return problems, nil
}

// readTexts returns the files that people write, by name.
func readTexts(tree fs.FS) (map[string]string, error) {
	texts := make(map[string]string)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			hidden := strings.HasPrefix(name, ".") && name != "." && name != ".ci" && name != ".github"
			if hidden || name == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		switch path.Ext(name) {
		case ".go", ".md", ".sql", ".yml", ".yaml":
		default:
			if path.Base(name) != "Makefile" && path.Dir(name) != ".ci" {
				return nil
			}
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		texts[name] = string(text)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("doccheck: %w", err)
	}
	return texts, nil
}
