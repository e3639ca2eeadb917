package main

import (
	"slices"
	"strings"
)

// page is a document in parts, each of which begins with a heading.
type page struct{ parts []part }

type part struct {
	heading string // such as "## Ratios"; "" before the first one
	text    string
}

func readPage(text string) *page {
	p := &page{parts: []part{{}}}
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if !fenced && (strings.HasPrefix(line, "## ") || strings.HasPrefix(line, "### ")) {
			p.parts = append(p.parts, part{heading: strings.TrimSpace(line)})
			continue
		}
		p.parts[len(p.parts)-1].text += line
	}
	return p
}

func (p *page) String() string {
	var b strings.Builder
	for _, part := range p.parts {
		if part.heading != "" {
			b.WriteString(part.heading + "\n\n")
		}
		if text := strings.Trim(part.text, "\n"); text != "" {
			b.WriteString(text + "\n\n")
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// part returns the part of a heading, which is put at the end of the page if there is none.
func (p *page) part(heading string) *part {
	i := slices.IndexFunc(p.parts, func(p part) bool { return p.heading == heading })
	if i < 0 {
		i = len(p.parts)
		p.parts = append(p.parts, part{heading: heading})
	}
	return &p.parts[i]
}

// merge puts rows into the table of a part, or adds the table. A row replaces the one with the same
// first cell; a cell that was not measured leaves what is there.
func (p *part) merge(t table) table {
	lines := strings.Split(strings.TrimRight(p.text, "\n")+"\n\n", "\n")
	begin := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "| ") })
	end := begin
	all := table{head: t.head}
	if begin < 0 {
		begin, end = len(lines)-1, len(lines)-1
	}
	for ; end < len(lines) && strings.HasPrefix(lines[end], "|"); end++ {
		if end > begin+1 { // behind the head and the rule
			all.rows = append(all.rows, cellsOf(lines[end]))
		}
	}
	for _, row := range t.rows {
		at := slices.IndexFunc(all.rows, func(old []string) bool { return old[0] == row[0] })
		if at < 0 || len(all.rows[at]) != len(row) {
			at = len(all.rows)
			all.rows = append(all.rows, make([]string, len(row)))
		}
		for i, cell := range row {
			if cell != unknown.text() || all.rows[at][i] == "" {
				all.rows[at][i] = cell
			}
		}
	}
	var b strings.Builder
	all.write(&b, true)
	p.text = strings.Join(slices.Concat(lines[:begin], strings.Split(strings.TrimSuffix(b.String(), "\n\n"), "\n"), lines[end:]), "\n")
	return all
}

func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "| \r"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}
