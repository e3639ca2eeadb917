package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"github.com/millpond-go/millpond/internal/fleet"
)

// result is what the run has shown. Whether the books agree is found by comparing them, order
// by order; the rest is the parent's and the provider's own.
type result struct {
	Orders int `json:"orders"`

	Deliveries int     `json:"deliveries"`
	Kills      int     `json:"kills"`
	Seconds    float64 `json:"seconds"`

	Requests int `json:"requests"`
	Lost     int `json:"answers_lost"`
	Replays  int `json:"replays"` // of a key that the provider remembered

	Unconfirmed int `json:"unconfirmed"` // nobody could know: decided by an operator
	ByHand      int `json:"by_hand"`     // of those, charged, and booked by hand

	Agree     int `json:"agree"`      // orders that are once in both books, with one amount and receipt
	Uncharged int `json:"uncharged"`  // orders that nobody has paid
	Doubled   int `json:"doubled"`    // charges beyond the first of an order
	Unbooked  int `json:"unbooked"`   // charged, and not in our books
	Overbooks int `json:"overbooked"` // lines of our books beyond the first of an order
	Differ    int `json:"differ"`     // amounts or receipts that are not the same

	withoutLease bool
}

func (r *result) fleet(report fleet.Report) {
	r.Deliveries, r.Kills, r.Seconds = report.Deliveries, report.Kills[fleet.SIGKILL], report.Duration.Seconds()
}

func (r *result) operator(op *operator) { r.Unconfirmed, r.ByHand = op.charged+op.wasNot, op.charged }

// compare reads both books.
func (r *result) compare(ctx context.Context, db *sql.DB, p *provider, o options) error {
	ours := make(map[string][]charge)
	rows, err := db.QueryContext(ctx, `SELECT order_id, cents, receipt FROM payment`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var (
			id string
			c  charge
		)
		if err := rows.Scan(&id, &c.Cents, &c.Receipt); err != nil {
			return err
		}
		ours[id] = append(ours[id], c)
	}
	for i := range o.orders {
		order := orderOf(i)
		r.order(order, p.charges(order.OrderID), ours[order.OrderID])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Requests, r.Lost, r.Replays = p.requests, p.lost, p.replays
	return rows.Err()
}

// order compares what both say of one.
func (r *result) order(o order, theirs, ours []charge) {
	r.Doubled += max(0, len(theirs)-1)
	r.Overbooks += max(0, len(ours)-1)
	switch {
	case len(theirs) == 0:
		r.Uncharged++
	case len(ours) == 0:
		r.Unbooked++
	case ours[0] != theirs[0] || ours[0].Cents != o.Cents:
		r.Differ++
	case len(ours) == 1 && len(theirs) == 1:
		r.Agree++
	}
}

// right reports whether the books agree.
func (r *result) right() bool { return r.Agree == r.Orders }

// print writes the result as the options want it.
func (r *result) print(o options, out io.Writer) error {
	if o.output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, n int, note string) {
		fmt.Fprintf(t, "%s\t%8s\t  %s\n", name, humanize.Comma(int64(n)), note)
	}
	row("orders", r.Orders, fmt.Sprintf("%s deliveries in %.1f s", humanize.Comma(int64(r.Deliveries)), r.Seconds))
	row("kills", r.Kills, "of a worker, by SIGKILL: before a request, after its answer, before and after a commit, anywhere")
	row("requests", r.Requests, "to the provider, over HTTP")
	row("answers lost", r.Lost, "the money was taken, and nobody heard of it")
	if !r.withoutLease {
		row("replays", r.Replays, "requests with a key that the provider had seen: nothing was charged")
		row("unconfirmed", r.Unconfirmed, fmt.Sprintf("the provider had forgotten the key: an operator has asked, and booked %d by hand", r.ByHand))
	}
	row("agree", r.Agree, "orders that are once in both books, with one amount and one receipt")
	row("charged twice", r.Doubled, "charges beyond the first of an order")
	row("booked twice", r.Overbooks, "lines of our books beyond the first of an order")
	row("not charged", r.Uncharged, "orders that nobody has paid")
	row("not booked", r.Unbooked, "orders that are paid, and not in our books")
	if r.Differ > 0 {
		row("differ", r.Differ, "orders with another amount or receipt in our books")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", r.summary())
	return err
}

func (r *result) summary() string {
	switch {
	case r.withoutLease && r.right():
		return "No damage this time: nothing was delivered twice, killed or lost."
	case r.withoutLease:
		return "This is what a lease and its idempotency key prevent: run it again without --without-lease."
	case r.right():
		return "Both books say the same: each order was charged once, whatever happened to its requests."
	default:
		return "Something is wrong here that must not be: please report it, with the seed."
	}
}
