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
		if l[i], err = readOrders(ctx, stores[service], tables[i]); err != nil {
			return l, err
		}
	}
	return l, nil
}

func readOrders(ctx context.Context, store *sqlite.Store, table string) (map[int64][]order, error) {
	rows, err := store.DB().QueryContext(ctx, "SELECT number, article, quantity FROM "+table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	orders := make(map[int64][]order)
	for rows.Next() {
		var o order
		if err := rows.Scan(&o.Number, &o.Article, &o.Quantity); err != nil {
			return nil, err
		}
		orders[o.Number] = append(orders[o.Number], o)
	}
	return orders, rows.Err()
}

// count counts the rows of a table; -1 if that is not known just now.
func count(ctx context.Context, store *sqlite.Store, table string) (n int) {
	if err := store.DB().QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
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
	once := [3]*int{&r.placed, &r.reserved, &r.shipped}
	balance := make(map[string][3]int64) // by article: what was ordered, and not reserved, and not shipped
	for _, o := range placing {
		b := balance[o.Article]
		balance[o.Article] = [3]int64{0, b[1] + o.Quantity, b[2] + o.Quantity}
		if len(l[2][o.Number]) == 0 {
			r.lost++
		}
		for i := range l {
			if found := l[i][o.Number]; len(found) > 0 && found[0] == o {
				*once[i]++
			}
			r.look(o, l[i][o.Number])
		}
	}
	for i, table := range l {
		for number, found := range table {
			if number < 1 || number > int64(len(placing)) {
				r.wrong++
			}
			for _, o := range found {
				if b := balance[o.Article]; i > 0 {
					b[i] -= o.Quantity
					balance[o.Article] = b
				}
			}
		}
	}
	for _, b := range balance {
		if b != [3]int64{} {
			r.unbalanced++
		}
	}
	return r
}

// look counts what is wrong with the rows of one order.
func (r *result) look(o order, found []order) {
	r.doubled += max(len(found)-1, 0)
	for _, f := range found {
		if f != o {
			r.wrong++
		}
	}
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
