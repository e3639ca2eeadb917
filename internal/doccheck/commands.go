package doccheck

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// ciScript is what has run a command that no test runs.
const ciScript = ".ci/run"

var (
	shells    = []string{"sh", "console", "bash", "shell"}
	ran       = regexp.MustCompile(`^<!--\s*run:\s*(\S+)(?:\s+(\w+))?(?:;\s*not run:\s*\S.*)?\s*-->$`)
	notRun    = regexp.MustCompile(`^<!--\s*not run:\s*\S.*-->$`)
	makesText = regexp.MustCompile(`\bmake ([a-z]+)`)
)

// checkCommands reports commands for a shell that do not say which test runs them, or why none does.
// A test that runs them reads their document, or stands beside it.
func checkCommands(c *code, texts map[string]string, doc *document) []Problem {
	var problems []Problem
	for _, f := range doc.fences {
		if !slices.Contains(shells, f.language) || notRun.MatchString(f.before) {
			continue
		}
		if why := whoRuns(c, texts, doc, f); why != "" {
			problems = append(problems, Problem{doc.name, f.line, why})
		}
	}
	return problems
}

func whoRuns(c *code, texts map[string]string, doc *document, f fence) string {
	m := ran.FindStringSubmatch(f.before)
	if m == nil {
		return "say on the line above these commands who runs them: <!-- run: path/to_test.go TestName -->, <!-- run: .ci/run --> or <!-- not run: why -->"
	}
	file, test := m[1], m[2]
	if file == ciScript {
		return targetNotRun(texts[ciScript], f)
	}
	if _, ok := c.bodies[file][test]; !ok {
		return fmt.Sprintf("%s has no test %q", file, test)
	}
	if path.Dir(file) == path.Dir(doc.name) {
		return ""
	}
	for name, text := range c.files {
		reads := strings.Contains(text, path.Base(doc.name)) || strings.Contains(text, `".md"`)
		if path.Dir(name) == path.Dir(file) && reads {
			return ""
		}
	}
	return fmt.Sprintf("no test beside %s reads this document", file)
}

// targetNotRun says which of a block's targets of make the script does not make.
func targetNotRun(script string, f fence) string {
	for _, l := range f.lines {
		for _, target := range makesText.FindAllStringSubmatch(l.text, -1) {
			made := regexp.MustCompile(`(?m)\bmake (?:--no-print-directory )?` + target[1] + `\b`)
			if !made.MatchString(script) {
				return fmt.Sprintf("%s does not make %s", ciScript, target[1])
			}
		}
	}
	return ""
}
