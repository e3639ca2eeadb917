package router

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millpond-go/millpond/internal/field"
)

// ConfigError lists all mistakes in a configuration, one per line, without secrets.
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

// origin is the file and line, or the variable, that set a value.
type origin struct {
	where string
	line  int
}

// reading collects a configuration, the origins of its values, and its mistakes.
type reading struct {
	config   Config
	name     string            // of the file
	origins  map[string]origin // by path
	problems []Problem
	reported map[string]bool // paths that something is wrong with

	// The file's values that a variable overrides, by path, and their places.
	overridden, overriddenAt map[string]string

	unreadable bool // the file is not YAML, so its fields are not checked
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

// take sets a field from its text.
func (r *reading) take(here origin, f field.Field, at place, text string) {
	if fix := r.config.set(f, at.key, text); fix != "" {
		var v reflect.Value
		f.Edit(&r.config, at.key, func(field reflect.Value) { v = field })
		r.badf(here, at.path, "is %s: %s", shownText(f, v, text), fix)
		return
	}
	r.origins[at.path] = here
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
