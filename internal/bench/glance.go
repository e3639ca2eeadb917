package main

import (
	"fmt"
	"math"
	"strings"
)

const (
	glanceTitle = "At a glance"
	glanceAbout = "A first delivery on PostgreSQL, with 16 workers on a loopback and with one worker at 500 µs of network time a round trip. " +
		"Rates are relative to the handler without an inbox."
)

// glance are the recipes that a reader chooses from, by what they are.
var glance = []struct{ what, recipe string }{
	{"no inbox", noInboxRouter},
	{"millpond", millpondRouter},
	{"millpond, queued", queuedRouter},
	{"insert by hand", textbookRouter},
	{"pending, processing, completed by hand", fiveStepRouter},
}

// writeGlance writes one table and one chart of what a message costs.
func (r *report) writeGlance(w *strings.Builder) {
	near, far := r.group("first"), r.group("far-first")
	t := table{head: []string{"recipe", "round trips", "commits", "WAL B", "msg/s", "rate", "rate with network time"}}
	var chart strings.Builder
	for _, g := range glance {
		at := near.row(g.recipe, goalWorkers)
		if at == nil {
			continue
		}
		share := at.share()
		t.rows = append(t.rows, []string{
			g.what, at.Trips.text(), at.Commits.text(), at.WAL.text(), at.Rate.text(), share.text(), far.row(g.recipe, 1).share().text(),
		})
		bar := strings.Repeat("█", int(math.Round(40*float64(share))))
		fmt.Fprintf(&chart, "%-38s  %-40s  %s\n", g.what, bar, share.text())
	}
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "## %s\n\n%s\n\n", glanceTitle, glanceAbout)
	t.write(w, true)
	fmt.Fprintf(w, "```\n%s```\n\n", chart.String())
}

// share is the rate relative to what the recipe is compared with.
func (r *row) share() figure {
	switch {
	case r == nil:
		return unknown
	case r.Against == "":
		return 1
	default:
		return r.RateRatio.Median
	}
}

// group returns the table of a group; that of one that was not measured is empty.
func (r *report) group(name string) *groupResult {
	for i := range r.Groups {
		if r.Groups[i].Name == name {
			return &r.Groups[i]
		}
	}
	return &groupResult{}
}
