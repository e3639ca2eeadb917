package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errorPage is the document that has every error of the public packages.
const errorPage = "docs/errors.md"

// exported is an error that a program can test for.
type exported struct {
	file string
	line int
	name string // stores.ErrBusy
	text string // "" if it is not a constant
	from string // delivery.ErrNotNow, if it is another one's
}

var (
	errorFolders = regexp.MustCompile(`^(?:middleware|stores|brokers|router)/`)
	errorName    = regexp.MustCompile("`(\\w+\\.(?:Err[A-Z]\\w*|[A-Z]\\w*Error))`")
	errorVar     = regexp.MustCompile(`^[Ee]rr[A-Z]\w*$`)
	errorType    = regexp.MustCompile(`^[A-Z]\w*Error$`)
)

// checkErrors reports exported errors that the page about errors does not have, by name and
// text, and others of package middleware by their text. Trees without that page are not checked.
func checkErrors(texts map[string]string) []Problem {
	page, ok := texts[errorPage]
	if !ok {
		return nil
	}
	var problems []Problem
	all := exportedErrors(texts)
	for _, e := range all {
		text := textOf(all, e)
		if e.inner() {
			named := slices.ContainsFunc(all, func(o exported) bool { return o.from == e.name })
			if !named && strings.HasPrefix(e.file, "middleware/") && strings.Contains(text, ": ") && !strings.Contains(page, "`"+text+"`") {
				problems = append(problems, Problem{e.file, e.line, fmt.Sprintf("%s does not have this text, which operators read: %s", errorPage, text)})
			}
			continue
		}
		switch {
		case !strings.Contains(page, "`"+e.name+"`"):
			problems = append(problems, Problem{e.file, e.line, fmt.Sprintf("%s does not have %s: say what causes it, and the cure", errorPage, e.name)})
		case text != "" && !strings.Contains(page, "`"+text+"`"):
			problems = append(problems, Problem{e.file, e.line, fmt.Sprintf("%s does not have the text of %s: %s", errorPage, e.name, text)})
		}
	}
	for i, line := range strings.Split(page, "\n") {
		for _, name := range errorName.FindAllStringSubmatch(line, -1) {
			if !slices.ContainsFunc(all, func(e exported) bool { return e.name == name[1] }) {
				problems = append(problems, Problem{errorPage, i + 1, fmt.Sprintf("there is no error %s", name[1])})
			}
		}
	}
	return problems
}

// inner: a program cannot name the error, but its text is seen with a message that has failed.
func (e exported) inner() bool {
	return strings.Contains(e.file, "/internal/") || strings.Contains(e.name, ".err")
}

// textOf follows an error that is another package's.
func textOf(all []exported, e exported) string {
	i := slices.IndexFunc(all, func(o exported) bool { return o.name == e.from })
	if e.from == "" || i < 0 {
		return e.text
	}
	return all[i].text
}

func exportedErrors(texts map[string]string) []exported {
	var all []exported
	for name, text := range texts {
		conformance := strings.Contains(name, "storetest/") || strings.Contains(name, "brokertest/")
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || conformance || !errorFolders.MatchString(name) {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		if err != nil {
			continue // parseCode says so
		}
		for _, spec := range specs(file) {
			for _, e := range errorsOf(spec) {
				e.name = file.Name.Name + "." + e.name
				e.file, e.line = name, files.Position(spec.Pos()).Line
				all = append(all, e)
			}
		}
	}
	return all
}

func specs(file *ast.File) []ast.Spec {
	var all []ast.Spec
	for _, declaration := range file.Decls {
		if general, ok := declaration.(*ast.GenDecl); ok {
			all = append(all, general.Specs...)
		}
	}
	return all
}

func errorsOf(spec ast.Spec) []exported {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if errorType.MatchString(spec.Name.Name) {
			return []exported{{name: spec.Name.Name}}
		}
	case *ast.ValueSpec:
		if len(spec.Names) == 1 && len(spec.Values) == 1 && errorVar.MatchString(spec.Names[0].Name) {
			e := exported{name: spec.Names[0].Name}
			switch value := spec.Values[0].(type) {
			case *ast.CallExpr:
				e.text = newText(value)
			case *ast.SelectorExpr:
				e.from = fmt.Sprintf("%s.%s", value.X, value.Sel.Name)
			}
			return []exported{e}
		}
	}
	return nil
}

// newText returns the text of a call of errors.New.
func newText(call *ast.CallExpr) string {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || function.Sel.Name != "New" || len(call.Args) != 1 {
		return ""
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return text
}
