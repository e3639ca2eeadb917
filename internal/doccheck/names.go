package doccheck

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var testName = regexp.MustCompile(`^(?:Test|Example|Fuzz|Benchmark)[A-Z_]\w*$`)

// A test as documents name it: its package, if they say it, and its subtests.
var mention = regexp.MustCompile(`(?:\b(\w+)\.)?\b((?:Test|Example|Fuzz|Benchmark)[A-Z_]\w*)((?:/[\w.,=:#-]*[\w=#-])*)`)

// checkNames reports tests that a document names and nobody has written. The parts
// after a slash are names of subtests, which have to be string literals somewhere.
func checkNames(c *code, doc *document) []Problem {
	var problems []Problem
	lines := slices.Clone(doc.prose)
	for _, f := range doc.fences {
		lines = append(lines, f.lines...)
	}
	for _, l := range lines {
		for _, m := range mention.FindAllStringSubmatch(l.text, -1) {
			qualifier, name, subtests := m[1], m[2], m[3]
			if qualifier != "" && !c.packages[qualifier] {
				continue // of another module
			}
			if !c.tests[name] {
				problems = append(problems, Problem{doc.name, l.number, fmt.Sprintf("there is no function %s in any .go file", name)})
				continue
			}
			for subtest := range strings.SplitSeq(strings.TrimPrefix(subtests, "/"), "/") {
				if subtest != "" && !c.subtests[subtest] {
					problems = append(problems, Problem{doc.name, l.number, fmt.Sprintf("%s has no subtest %q: no string in any .go file says so", name, subtest)})
				}
			}
		}
	}
	return problems
}
