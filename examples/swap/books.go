package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// books are what the database says.
type books struct {
	reserved map[string][]order // by order id
	stock    map[string]int64
	failed   map[string]bool // orders that are kept as dead letters
}

func readBooks(ctx context.Context, in database, store stores.Inspector) (books, error) {
	b := books{reserved: make(map[string][]order), stock: make(map[string]int64), failed: make(map[string]bool)}
	if err := in.read(ctx, &b); err != nil {
		return b, err
	}
	failed, err := store.Messages(ctx, stores.MessageQuery{
		Filter: stores.Filter{Status: []stores.Status{stores.StatusFailed}},
		Limit:  orderCount,
	})
	for _, m := range failed {
		if id, ok := strings.CutPrefix(keys.Format(m.Key.ID), "u:"); ok {
			b.failed[id] = true
		}
	}
	return b, err
}

// result is what the comparison of books and orders has shown.
type result struct {
	orders  int
	applied int // once, as ordered
	dropped int // messages that were acked and changed nothing
	retried int // applied after attempts that had failed
	failed  int // for good, and kept
	lost    int // neither applied nor kept
	doubled int // reservations beyond the first of an order
	wrong   int // reservations that nobody ordered, and articles whose stock they do not explain
}

func (r result) right() bool { return r.lost == 0 && r.doubled == 0 && r.wrong == 0 }

// compare looks for every order in the books.
func compare(shop []order, b books, s seen) result {
	r := result{orders: len(shop), failed: len(b.failed)}
	reservations := 0
	left := make(map[string]int64)
	for _, article := range articles {
		left[article] = openingStock
	}
	for _, o := range shop {
		reserved := b.reserved[o.ID]
		reservations += len(reserved)
		switch {
		case len(reserved) == 0 && !b.failed[o.ID]:
			r.lost++
		case len(reserved) == 1 && reserved[0] == o:
			r.applied++
			if s.tripped[o.ID] {
				r.retried++
			}
		}
		for i, line := range reserved {
			left[line.Article] -= line.Quantity
			if i > 0 {
				r.doubled++
			}
			if line != o || b.failed[o.ID] {
				r.wrong++
			}
		}
		delete(b.reserved, o.ID)
	}
	r.dropped = s.acked - reservations - r.failed
	r.wrong += len(b.reserved)
	for article, quantity := range left {
		if b.stock[article] != quantity {
			r.wrong++
		}
	}
	return r
}

// show writes the table, which says nothing that depends on the broker.
func (r result) show(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, n int, note string) { fmt.Fprintf(t, "%s\t%4d\t%s\n", name, n, note) }
	row("orders", r.orders, "that the shop has sent, some of them twice")
	row("applied once", r.applied, "to stock and reservations, in one transaction each")
	row("duplicates dropped", r.dropped, "messages that changed nothing")
	row("retried", r.retried, "applied after attempts that had failed")
	row("failed", r.failed, "for good, and kept with the reason")
	row("lost", r.lost, "neither applied nor kept")
	row("doubled", r.doubled, "reservations beyond the first of an order")
	row("wrong", r.wrong, "reservations and stocks that no order explains")
	return t.Flush()
}
