package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table is text in rows and columns. The first column is set left, the others right.
type table struct {
	head []string
	rows [][]string
}

// write writes the table with aligned columns. Markdown is plain text with bars.
func (t table) write(w *strings.Builder, markdown bool) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.line(w, t.head, widths, markdown)
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
		if markdown && i > 0 {
			rule[i] = rule[i][1:] + ":"
		}
	}
	t.line(w, rule, widths, markdown)
	for _, row := range t.rows {
		t.line(w, row, widths, markdown)
	}
	w.WriteByte('\n')
}

func (t table) line(w *strings.Builder, cells []string, widths []int, markdown bool) {
	padded := make([]string, len(cells))
	for i, cell := range cells {
		blank := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		padded[i] = blank + cell
		if i == 0 {
			padded[i] = cell + blank
		}
	}
	if markdown {
		fmt.Fprintf(w, "| %s |\n", strings.Join(padded, " | "))
		return
	}
	fmt.Fprintln(w, strings.Join(padded, "  "))
}

func (r *report) goalTable() table {
	t := table{head: []string{"goal", "floor", "aim", "throughput", "CPU", "verdict"}}
	for _, g := range r.Goals {
		rate := g.Rate.text()
		if g.shown != "" {
			rate = g.shown
		}
		t.rows = append(t.rows, []string{g.What, g.Floor, g.Aim, rate, g.CPU.text(), g.Verdict})
	}
	return t
}

// ratioTable is what a user wants to know of the goals.
func (r *report) ratioTable() table {
	t := table{head: []string{"comparison", "throughput", "CPU"}}
	for _, row := range r.goalTable().rows {
		t.rows = append(t.rows, []string{row[0], row[3], row[4]})
	}
	return t
}

func (r *groupResult) table() table {
	t := table{head: []string{
		"recipe", "workers", "msg/s", "throughput ratio", "CPU ratio", "client µs", "server µs",
		"WAL B", "commits", "trips", "p50 ms", "p99 ms",
	}}
	for _, c := range r.Rows {
		t.rows = append(t.rows, []string{
			c.Recipe, strconv.Itoa(c.Workers), c.Rate.text(), c.RateRatio.text(), c.CPURatio.text(),
			c.Client.text(), c.Server.text(), c.WAL.text(), c.Commits.text(), c.Trips.text(), c.P50.text(), c.P99.text(),
		})
	}
	return t
}

func (r *report) middlewareTable() table {
	t := table{head: []string{"call", "ns", "allocs", "bytes"}}
	for _, c := range r.Middleware {
		t.rows = append(t.rows, []string{c.Name, c.Time.text(), c.Allocs.text(), c.Bytes.text()})
	}
	return t
}

const middlewareTitle = "The inbox alone"

const middlewareAbout = "One goroutine, 1 kB payload, a store that claims at once and keeps nothing, a handler that does nothing."

// text is the report for people.
func (r *report) text() string {
	w := &strings.Builder{}
	fmt.Fprintf(w, "%s\n%s\n\n", r.Machine, r.method())
	for _, g := range r.Groups {
		fmt.Fprintf(w, "%s\n%s\n\n", g.Title, g.About)
		g.table().write(w, false)
	}
	if len(r.Middleware) > 0 {
		fmt.Fprintf(w, "%s\n%s\n\n", middlewareTitle, middlewareAbout)
		r.middlewareTable().write(w, false)
	}
	if len(r.Goals) > 0 {
		fmt.Fprint(w, "Goals\n\n")
		r.goalTable().write(w, false)
	}
	return w.String()
}

func (r *report) method() string {
	cells := fmt.Sprintf("cells of about %v each", r.Cell)
	if r.Turns > 1 {
		cells = fmt.Sprintf("cells of %d turns of about %v each", r.Turns, r.Cell)
	}
	return fmt.Sprintf("%s of %s. Ratios are medians of the repeats (lower–upper quartile); above 1 is better, of CPU time too.",
		plural(r.Repeats, "repeat"), cells)
}
