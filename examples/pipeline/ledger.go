package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/millpond-go/millpond/stores/sqlite"
)

// tables are where the services write.
var tables = [3]string{"placed", "reserved", "parcel"}

// ledger is what the databases say of each order, by service.
type ledger [3]map[int64][]order

func readLedger(ctx context.Context, stores map[string]*sqlite.Store) (l ledger, err error) {
	for i, service := range services {
		l[i] = make(map[int64][]order)
		rows, err := stores[service].DB().QueryContext(ctx, "SELECT number, article, quantity FROM "+tables[i]) //nolint:gosec // the names are ours
		if err != nil {
			return l, err
		}
		for rows.Next() {
			var o order
			if err := rows.Scan(&o.Number, &o.Article, &o.Quantity); err != nil {
				return l, err
			}
			l[i][o.Number] = append(l[i][o.Number], o)
		}
		if err := rows.Err(); err != nil {
			return l, err
		}
	}
	return l, nil
}

// count counts the rows of a table; -1 if that is not known just now.
func count(ctx context.Context, store *sqlite.Store, table string) (n int) {
	if err := store.DB().QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil { //nolint:gosec // the names are ours
		return -1
	}
	return n
}

// result is what the comparison of orders and ledger has shown.
type result struct {
	placed, reserved, shipped int // orders: once, as they were placed
	lost                      int // accepted by the shop, and not shipped
	doubled                   int // reservations and parcels beyond the first of an order
	unbalanced                int // articles of which not as many were reserved and shipped as ordered
	wrong                     int // reservations and parcels that nobody has ordered like that

	kills         [3]int
	withoutOutbox bool
}

func (r *result) right() bool {
	return r.lost == 0 && r.doubled == 0 && r.unbalanced == 0 && r.wrong == 0
}

// compare looks for every accepted order in the ledger of each service.
func compare(placing []order, l ledger) *result {
	r := &result{}
	sums := make(map[string]*[3]int64)
	for _, article := range articles {
		sums[article] = new([3]int64)
	}
	for _, o := range placing {
		sums[o.Article][0] += o.Quantity
		for i, once := range []*int{&r.placed, &r.reserved, &r.shipped} {
			found := l[i][o.Number]
			delete(l[i], o.Number)
			if len(found) > 0 && found[0] == o {
				*once++
			}
			if i == 2 && len(found) == 0 {
				r.lost++
			}
			for n, f := range found {
				if f != o {
					r.wrong++
				}
				if n > 0 {
					r.doubled++
				}
				if i > 0 && sums[f.Article] != nil {
					sums[f.Article][i] += f.Quantity
				}
			}
		}
	}
	for i := range l {
		r.wrong += len(l[i])
	}
	for _, sum := range sums {
		if sum[1] != sum[0] || sum[2] != sum[0] {
			r.unbalanced++
		}
	}
	return r
}

// show writes the table.
func (r *result) show(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, n int, note string) { fmt.Fprintf(t, "%s\t%8d\t%s\n", name, n, note) }
	row("orders", r.placed, "accepted by the shop, over HTTP")
	row("reserved", r.reserved, "by the stock, behind an inbox")
	row("shipped", r.shipped, "by the shipping, behind another")
	row("kills", r.kills[0]+r.kills[1]+r.kills[2], fmt.Sprintf("by SIGKILL: %d of the shop, %d of the stock, %d of the shipping", r.kills[0], r.kills[1], r.kills[2]))
	row("lost", r.lost, "accepted, and not shipped")
	row("doubled", r.doubled, "reservations and parcels beyond the first of an order")
	row("unbalanced", r.unbalanced, fmt.Sprintf("of %d articles: what was ordered, reserved and shipped differs", len(articles)))
	if r.wrong > 0 {
		row("wrong", r.wrong, "reservations and parcels that nobody has ordered")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", r.summary())
	return err
}

func (r *result) summary() string {
	switch {
	case r.withoutOutbox && r.right():
		return "No damage this time: nobody died at the wrong moment. Try more --kills."
	case r.withoutOutbox:
		return "This is what the outbox prevents: run it again without --without-outbox."
	case r.right():
		return "The ledger balances: what was ordered was reserved once, and shipped once."
	default:
		return "Something is wrong here that must not be: please report it, with the seed."
	}
}
