package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// documentName is the document of runs, from the root of the module.
const documentName = "docs/benchmarks.md"

// Headings of the document that a run knows. All else in it is written by hand.
const (
	glanceHeading  = "## At a glance"
	ratiosHeading  = "## Ratios"
	runsHeading    = "## Runs"
	appendixPrefix = "### "
)

// writeDocument puts what was measured into the document, and leaves the rest of it.
func (r *report) writeDocument() error {
	old, err := os.ReadFile(documentName)
	if err == nil {
		err = os.WriteFile(documentName, []byte(r.document(string(old))), 0o644) //nolint:gosec // for everybody to read
	}
	if err != nil {
		return fmt.Errorf("update the document, in the root of the module: %w", err)
	}
	return nil
}

func (r *report) document(old string) string {
	p := readPage(old)
	r.writeGlance(p.part(glanceHeading))
	p.part(ratiosHeading).merge(r.ratioTable())
	runs := p.part(runsHeading)
	runs.text = fmt.Sprintf("%s\n- **%s**: %s. %s\n", strings.TrimRight(runs.text, "\n"), r.name(), r.Machine, r.method())
	for _, g := range r.Groups {
		r.writeTable(p, g.Title, g.About, g.table())
	}
	if len(r.Middleware) > 0 {
		r.writeTable(p, middlewareTitle, middlewareAbout, r.middlewareTable())
	}
	return p.String()
}

// writeTable replaces the table of a group.
func (r *report) writeTable(p *page, title, about string, t table) {
	var b strings.Builder
	t.write(&b, true)
	p.part(appendixPrefix + title).text = fmt.Sprintf("%s (Run of %s.)\n\n%s", about, r.name(), b.String())
}

// name is by what the document knows the run.
func (r *report) name() string { return r.Began.UTC().Format(time.DateOnly + " 15:04") }
