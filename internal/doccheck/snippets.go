package doccheck

import (
	"fmt"
	"regexp"
	"strings"
)

var source = regexp.MustCompile(`^<!--\s*example:\s*(\S+)\s+(\w+)\s*-->$`)

// checkSnippets reports Go code in README.md and docs that is not the code of an
// example, which is compiled and tested.
func checkSnippets(c *code, doc *document) []Problem {
	if doc.name != "README.md" && !strings.HasPrefix(doc.name, "docs/") {
		return nil
	}
	var problems []Problem
	for _, f := range doc.fences {
		if f.language != "go" {
			continue
		}
		if at, why := checkSnippet(c, f); why != "" {
			problems = append(problems, Problem{doc.name, at, why})
		}
	}
	return problems
}

func checkSnippet(c *code, f fence) (at int, why string) {
	m := source.FindStringSubmatch(f.before)
	if m == nil {
		return f.line, "put the example that this Go code is copied from on the line above it: <!-- example: path/to/example_test.go ExampleName -->"
	}
	file, name := m[1], m[2]
	text, ok := c.files[file]
	if !ok {
		return f.line, fmt.Sprintf("there is no test file or example's program %s", file)
	}
	body, ok := c.bodies[file][name]
	if !ok || !strings.HasPrefix(name, "Example") && name != wholeProgram {
		return f.line, fmt.Sprintf("%s has no example %s", file, name)
	}
	if missing(f.lines, body) == nil {
		return 0, ""
	}
	// Imports and types stand outside the function.
	if l := missing(f.lines, text); l != nil {
		return l.number, fmt.Sprintf("%q is not in %s, at least not after the lines before it: change the example and copy its code from there", strings.TrimSpace(l.text), file)
	}
	return 0, ""
}

// missing returns the first of the lines that is not in text, where the lines have
// to stand in the same order, whatever stands between them. Spaces do not count,
// and a line of dots only says that something is left out.
func missing(lines []line, text string) *line {
	rest := strings.Split(text, "\n")
	for i, wanted := range lines {
		words := normal(wanted.text)
		if words == "" || strings.Trim(words, "/.… ") == "" {
			continue
		}
		found := false
		for len(rest) > 0 && !found {
			found = normal(rest[0]) == words
			rest = rest[1:]
		}
		if !found {
			return &lines[i]
		}
	}
	return nil
}

func normal(s string) string { return strings.Join(strings.Fields(s), " ") }
