package router

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ConfigError lists everything that is wrong with a configuration, a line for each. No
// line has a secret.
type ConfigError struct{ Problems []Problem }

func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Problem is one mistake in a configuration.
type Problem struct {
	Where string // "millpond.yaml:7", the name of a variable, or "" for a Config made by the program
	Field string // "inbox.hold.limit"; "" if it is none
	Text  string // what is wrong with it, with its value, and what to do

	line int
}

func (p Problem) String() string {
	text := p.Text
	if p.Field != "" {
		text = p.Field + " " + text
	}
	return cmp.Or(p.Where, "router") + ": " + text
}

// origin is where a value was written.
type origin struct {
	where string
	line  int
}

// reading collects a configuration, where its values come from, and what is wrong.
type reading struct {
	config   Config
	name     string            // of the file
	origins  map[string]origin // by path
	problems []Problem
	reported map[string]bool // paths that something is wrong with

	// What the file says where a variable counts more, by path, and where it stands.
	overridden, overriddenAt map[string]string

	unreadable bool // the file: that is all there is to say about it
}

func newReading(c Config) *reading {
	return &reading{
		config: c, origins: make(map[string]origin), reported: make(map[string]bool),
		overridden: make(map[string]string), overriddenAt: make(map[string]string),
	}
}

func (r *reading) badf(at origin, field, format string, args ...any) {
	r.reported[field] = true
	r.problems = append(r.problems, Problem{Where: at.where, Field: field, Text: fmt.Sprintf(format, args...), line: at.line})
}

func (r *reading) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.line, b.line) })
	return &ConfigError{Problems: r.problems}
}

// quoted shows a value in a message.
func quoted(text string) string {
	const longest = 80
	text = scrub(text)
	if utf8.RuneCountInString(text) > longest {
		text = string([]rune(text)[:longest]) + "…"
	}
	return strconv.Quote(text)
}

// nearest returns the one of the known names that a misspelt one probably means.
func nearest(name string, known []string) (string, bool) {
	best, least := "", min(max(2, len(name)/3)+1, len(name))
	for _, candidate := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best, best != ""
}

// distance counts the letters to insert, remove, replace or swap with their neighbor.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
