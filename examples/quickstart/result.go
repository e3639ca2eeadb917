package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/millpond-go/millpond/internal/fleet"
)

// result is what the run has shown. Everything about events is found by comparing the
// input with the database; deliveries and kills are the parent's own.
type result struct {
	Store string `json:"store"`

	Lines  int `json:"lines"`  // in the input
	Events int `json:"events"` // different ones among them

	Deliveries  int     `json:"deliveries"`
	Redelivered int     `json:"redelivered"` // cut off by a kill, and sent again
	Kills       int     `json:"kills"`
	Exits       int     `json:"exits"` // workers that ended by themselves
	Seconds     float64 `json:"seconds"`

	AppliedOnce       int                      `json:"applied_once"` // by this run and those before it
	AppliedNow        int                      `json:"applied_now"`  // by this run
	DuplicatesStopped int                      `json:"duplicates_stopped"`
	Quarantined       map[string]*inQuarantine `json:"quarantined"` // by reason
	Lost              int                      `json:"lost"`
	Doubled           int                      `json:"doubled"`
	Altered           int                      `json:"altered"`     // applied, but not as sent
	StockWrong        int                      `json:"stock_wrong"` // articles whose stock is not what the ledger says

	withoutInbox   bool
	quarantineSeen int
}

// inQuarantine are events that were kept aside for one reason.
type inQuarantine struct {
	Events int    `json:"events"`
	Detail string `json:"detail"` // of one of them
}

func (r *result) quarantined(q quarantined) {
	if r.Quarantined[q.reason] == nil {
		r.Quarantined[q.reason] = &inQuarantine{Detail: q.detail}
	}
	in := r.Quarantined[q.reason]
	in.Events++
	in.Detail = min(in.Detail, q.detail)
}

// Fleet adds what the parent knows.
func (r *result) Fleet(o options, db database, report fleet.Report) {
	r.Store = db.String()
	r.Deliveries = report.Deliveries
	r.Redelivered = report.Redeliveries
	r.Kills = report.Kills[fleet.SIGKILL]
	r.Exits = report.Exits
	r.Seconds = report.Duration.Seconds()
	r.withoutInbox = o.withoutInbox
	if !o.withoutInbox {
		// Of all deliveries that were acked, those which changed nothing.
		r.DuplicatesStopped = max(0, report.Acks-r.AppliedNow-r.quarantineSeen)
	}
}

// Right reports whether the database says what the events say.
func (r *result) Right() bool {
	return r.Lost == 0 && r.Doubled == 0 && r.Altered == 0 && r.StockWrong == 0
}

// Print writes the result as the options want it.
func (r *result) Print(o options, out io.Writer) error {
	if o.output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, n int, note string) {
		fmt.Fprintf(t, "%s\t%12s\t  %s\n", name, humanize.Comma(int64(n)), note)
	}
	row("events", r.Events, fmt.Sprintf("different ones; their producer sent %s", humanize.Comma(int64(r.Lines))))
	row("deliveries", r.Deliveries, fmt.Sprintf("in %.1f s; %s were cut off by kills and made again", r.Seconds, humanize.Comma(int64(r.Redelivered))))
	row("applied once", r.AppliedOnce, r.appliedNote())
	if !r.withoutInbox {
		row("duplicates stopped", r.DuplicatesStopped, "deliveries that changed nothing")
	}
	row("kills", r.Kills, "of a worker, by SIGKILL, in the middle")
	if r.Exits > 0 {
		row("exits", r.Exits, "of a worker, by itself")
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Quarantined)) {
		q := r.Quarantined[reason]
		row("quarantined", q.Events, reason+": "+printable(q.Detail))
	}
	row("lost", r.Lost, "events, neither applied nor kept")
	row("doubled", r.Doubled, "deductions beyond the first of an event")
	if r.Altered > 0 {
		row("altered", r.Altered, "applied, but not as they were sent")
	}
	if r.StockWrong > 0 {
		row("stock wrong", r.StockWrong, "articles with another quantity than the ledger says")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", r.summary())
	return err
}

func (r *result) appliedNote() string {
	switch {
	case r.withoutInbox:
		return "of the events"
	case r.AppliedNow == 0:
		return "all by earlier runs, none by this one"
	case r.AppliedNow < r.AppliedOnce:
		return fmt.Sprintf("%s of them by this run", humanize.Comma(int64(r.AppliedNow)))
	default:
		return "to the stock and the ledger, in one transaction each"
	}
}

func (r *result) summary() string {
	switch {
	case r.withoutInbox && r.Right():
		return "No damage this time: there was nothing to deliver twice."
	case r.withoutInbox:
		return "This is what the inbox prevents: run it again without --without-inbox."
	case !r.Right():
		return "Something is wrong here that must not be: please report it, with the seed."
	case r.AppliedNow == 0:
		return "Everything was a duplicate: nothing was applied again. --fresh begins with an empty database."
	case len(r.Quarantined) > 0:
		return "Each event took effect once, or is kept in quarantine. Run it again: everything will be a duplicate."
	default:
		return "Each event took effect once. Run it again: everything will be a duplicate."
	}
}
