package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
)

// contractPage is the package comment that explains the interfaces of a store.
const contractPage = "stores/doc.go"

// checkContract reports interfaces of the contract that its package comment leaves out.
func checkContract(texts map[string]string) []Problem {
	page, ok := texts[contractPage]
	if !ok {
		return nil
	}
	var problems []Problem
	for name, text := range texts {
		if path.Dir(name) != path.Dir(contractPage) || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		if err != nil {
			continue // parseCode says so
		}
		for _, spec := range specs(file) {
			t, ok := spec.(*ast.TypeSpec)
			if !ok || !t.Name.IsExported() {
				continue
			}
			if _, ok := t.Type.(*ast.InterfaceType); ok && !strings.Contains(page, "["+t.Name.Name+"]") {
				problems = append(problems, Problem{name, files.Position(t.Pos()).Line, fmt.Sprintf("%s does not say what %s is for", contractPage, t.Name.Name)})
			}
		}
	}
	return problems
}
