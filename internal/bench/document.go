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
	runsFold       = `<details markdown="1">` + "\n<summary>Machines and load of each run</summary>"
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
	p.part(runsHeading) // before the tables
	for _, g := range r.Groups {
		r.writeTable(p, g.Title, g.About, g.table())
	}
	if len(r.Middleware) > 0 {
		r.writeTable(p, middlewareTitle, middlewareAbout, r.middlewareTable())
	}
	r.writeRuns(p)
	return p.String()
}

// writeRuns adds the run to those that are folded away, and drops those that no table is of any more.
func (r *report) writeRuns(p *page) {
	runs := p.part(runsHeading)
	before, list, folded := strings.Cut(runs.text, runsFold)
	if !folded {
		before, list = "", runs.text
	}
	kept := before + runsFold + "\n\n"
	for line := range strings.Lines(list) {
		name, _, ok := strings.Cut(strings.TrimPrefix(line, "- **"), "**: ")
		if ok && strings.Contains(p.String(), "(Run of "+name+".)") {
			kept += line
		}
	}
	p.part(runsHeading).text = fmt.Sprintf("%s- **%s**: %s. %s\n\n</details>\n", kept, r.name(), r.Machine, r.method())
}

// writeTable replaces the table of a group.
func (r *report) writeTable(p *page, title, about string, t table) {
	var b strings.Builder
	t.write(&b, true)
	p.part(appendixPrefix + title).text = fmt.Sprintf("%s (Run of %s.)\n\n%s", about, r.name(), b.String())
}

// name is by what the document knows the run.
func (r *report) name() string { return r.Began.UTC().Format(time.DateOnly + " 15:04") }
