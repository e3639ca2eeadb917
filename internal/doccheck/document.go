package doccheck

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// document is a Markdown file, split into prose and fenced code.
type document struct {
	name    string
	prose   []line
	fences  []fence
	anchors map[string]bool // of its headings, as GitHub makes them
}

type line struct {
	number int
	text   string
}

// fence is a block of code between two lines of backticks.
type fence struct {
	line     int    // of the opening backticks
	language string // "go"
	before   string // the nearest line above that is not empty
	lines    []line
}

var (
	heading  = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

func parseDocument(name, text string) *document {
	doc := &document{name: name, anchors: make(map[string]bool)}
	var open string // the backticks of the fence we are in
	var before string
	for i, raw := range strings.Split(text, "\n") {
		here := line{i + 1, raw}
		trimmed := strings.TrimSpace(raw)
		ticks := trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
		switch {
		case open != "" && trimmed == ticks && len(ticks) >= len(open):
			open, before = "", ""
		case open != "":
			current := &doc.fences[len(doc.fences)-1]
			current.lines = append(current.lines, here)
		case len(ticks) >= 3:
			open = ticks
			language, _, _ := strings.Cut(strings.TrimSpace(trimmed[len(ticks):]), " ")
			doc.fences = append(doc.fences, fence{line: here.number, language: language, before: before})
		default:
			doc.prose = append(doc.prose, here)
			if trimmed != "" {
				before = trimmed
			}
			if h := heading.FindStringSubmatch(trimmed); h != nil {
				doc.addAnchor(anchor(h[1]))
			}
		}
	}
	return doc
}

// addAnchor numbers the second and later headings of one text, as GitHub does.
func (d *document) addAnchor(name string) {
	unique := name
	for n := 1; d.anchors[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", name, n)
	}
	d.anchors[unique] = true
}

// anchor is the name that GitHub gives a heading.
func anchor(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}
