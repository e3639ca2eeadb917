package doccheck

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"strconv"
	"strings"
)

// code is what the documents may refer to.
type code struct {
	packages map[string]bool              // names of packages
	tests    map[string]bool              // names of tests, also those that conformance suites export
	subtests map[string]bool              // string literals, as `go test` writes them in names of subtests
	files    map[string]string            // test files, and programs of examples
	bodies   map[string]map[string]string // of the examples and tests in them
}

// wholeProgram names, in place of an example, all of a program below examples.
const wholeProgram = "main"

func parseCode(texts map[string]string) (*code, []Problem) {
	c := &code{
		packages: make(map[string]bool),
		tests:    make(map[string]bool),
		subtests: make(map[string]bool),
		files:    make(map[string]string),
		bodies:   make(map[string]map[string]string),
	}
	var problems []Problem
	for name, text := range texts {
		if path.Ext(name) != ".go" {
			continue
		}
		if err := c.add(name, text); err != nil {
			at := 1
			if list, ok := errors.AsType[scanner.ErrorList](err); ok {
				at = list[0].Pos.Line
			}
			problems = append(problems, Problem{name, at, fmt.Sprintf("it does not parse: %v", err)})
		}
	}
	return c, problems
}

func (c *code) add(name, text string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	c.packages[strings.TrimSuffix(file.Name.Name, "_test")] = true
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if s, err := strconv.Unquote(literal.Value); err == nil {
				c.subtests[strings.ReplaceAll(s, " ", "_")] = true
			}
		}
		return true
	})
	bodies := make(map[string]string)
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Body == nil || !testName.MatchString(f.Name.Name) {
			continue
		}
		c.tests[f.Name.Name] = true
		bodies[f.Name.Name] = text[files.Position(f.Body.Lbrace).Offset+1 : files.Position(f.Body.Rbrace).Offset]
	}
	switch {
	case strings.HasSuffix(name, "_test.go"):
		c.files[name], c.bodies[name] = text, bodies
	case strings.HasPrefix(name, "examples/") && path.Base(name) == "main.go":
		c.files[name], c.bodies[name] = text, map[string]string{wholeProgram: text}
	}
	return nil
}
