package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// glance are the recipes that a reader chooses from, by what they are.
var glance = []struct{ what, group, recipe string }{
	{"no inbox", "first", noInboxRouter},
	{"millpond", "first", millpondRouter},
	{"millpond, first deliveries after a clean end", "failures", firstOfProcess},
	{"millpond, first deliveries after an unclean end", "first", suspectRouter},
	{"millpond, queued statements", "first", queuedRouter},
	{"insert by hand", "first", textbookRouter},
	{"pending, processing, completed by hand", "first", fiveStepRouter},
}

// glanceRate is the column of rates on a loopback.
const glanceRate = 5

// writeGlance writes one table and one chart of what a message costs.
func (r *report) writeGlance(p *part) {
	t := table{head: []string{"recipe", "round trips", "commits", "WAL B", "msg/s", "rate", "rate with network time"}}
	for _, g := range glance {
		at, far := r.group(g.group).row(g.recipe, goalWorkers), r.group("far-first").row(g.recipe, 1)
		if at == nil && far == nil {
			continue
		}
		near := at
		if near == nil || g.group != "first" { // compared with something else, or not measured
			near = &row{Rate: unknown, RateRatio: span{Median: unknown}, Against: g.recipe, Trips: unknown, Commits: unknown, WAL: unknown}
		}
		if at != nil {
			near.Trips, near.Commits, near.WAL = at.Trips, at.Commits, at.WAL
		}
		t.rows = append(t.rows, []string{
			g.what, near.Trips.text(), near.Commits.text(), near.WAL.text(), near.Rate.text(), near.share().text(), far.share().text(),
		})
	}
	if len(t.rows) == 0 {
		return
	}
	all := p.merge(t)
	before, after, found := strings.Cut(p.text, "```\n")
	if !found {
		before += "\n\n"
	} else if _, after, found = strings.Cut(after, "```\n"); !found {
		after = ""
	}
	p.text = before + "```\n" + chartOf(all) + "```\n" + after
}

// chartOf draws the rates of a table.
func chartOf(t table) string {
	var b strings.Builder
	for _, row := range t.rows {
		if share, err := strconv.ParseFloat(row[glanceRate], 64); err == nil {
			fmt.Fprintf(&b, "%4s  %-24s  %s\n", row[glanceRate], strings.Repeat("█", int(math.Round(24*share))), row[0])
		}
	}
	return b.String()
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
