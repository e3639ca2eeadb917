package doccheck

import (
	"path"
	"regexp"
	"strings"
)

var (
	// Not context.TODO, which is a name.
	leftOpen = regexp.MustCompile(`(?:^|[^.\w])(?:TO` + `DO|FIX` + `ME)\b`)

	promise = regexp.MustCompile(`(?i)exactly[- ]once[- ]delivery`)
	denial  = regexp.MustCompile(`(?i)\b(?:not|never)\b`)
)

// checkWords reports work left open, and the promise that no broker can keep.
func checkWords(name, text string) []Problem {
	var problems []Problem
	report := func(at int, why string) { problems = append(problems, Problem{name, at + 1, why}) }

	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if leftOpen.MatchString(l) {
			report(i, "something is left open here: do it, or write down why not")
		}
		if ext := path.Ext(name); ext != ".md" && ext != ".go" {
			continue
		}
		if at := promised(lines, i); at >= 0 && !denial.MatchString(l[:at]) {
			report(i, `nobody can promise this: write "effects happen once", or deny it in the same line, before it`)
		}
	}
	return problems
}

// promised returns where in line i the promise begins, also if it goes on in the
// next line; -1 if it does not.
func promised(lines []string, i int) int {
	text := strings.TrimRight(lines[i], " \r")
	length := len(text)
	if i+1 < len(lines) {
		text += " " + strings.TrimLeft(lines[i+1], " \t/*>#-")
	}
	if at := promise.FindStringIndex(text); at != nil && at[0] < length {
		return at[0]
	}
	return -1
}
