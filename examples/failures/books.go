package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/millpond-go/millpond/examples/internal/rows"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// openingBalance is what every account has before the first order.
const openingBalance = 1_000_000

// openAccounts gives every customer an account.
func openAccounts(ctx context.Context, d *database, orders []order) error {
	names := []string{account(orderCount + 1)} // who orders later
	for _, o := range orders {
		names = append(names, o.Account)
	}
	for _, name := range names {
		if _, err := d.db.ExecContext(ctx, `INSERT INTO account (name, balance, version) VALUES ($1, $2, 0) ON CONFLICT (name) DO NOTHING`,
			name, openingBalance); err != nil {
			return err
		}
	}
	return nil
}

// books are what the database says.
type books struct {
	charges   map[string][]charge // by order
	balances  map[string]int64
	discarded map[string]bool // orders about which an operator has decided so
}

type charge struct {
	account string
	cents   int64
}

func readBooks(ctx context.Context, d *database) (books, error) {
	b := books{charges: make(map[string][]charge), balances: make(map[string]int64), discarded: make(map[string]bool)}
	err := rows.Each(ctx, d.db, `SELECT order_id, account, cents FROM charge`, func(found *sql.Rows) error {
		var id string
		var c charge
		err := found.Scan(&id, &c.account, &c.cents)
		b.charges[id] = append(b.charges[id], c)
		return err
	})
	if err != nil {
		return b, err
	}
	err = rows.Each(ctx, d.db, `SELECT name, balance FROM account`, func(found *sql.Rows) error {
		var name string
		var balance int64
		err := found.Scan(&name, &balance)
		b.balances[name] = balance
		return err
	})
	if err != nil {
		return b, err
	}
	messages, err := d.store.Messages(ctx, stores.MessageQuery{
		Filter: stores.Filter{Service: consumer.Service, Handler: consumer.Handler, Status: []stores.Status{stores.StatusDiscarded}},
		Limit:  10 * orderCount,
	})
	for _, m := range messages {
		b.discarded[strings.TrimPrefix(keys.Format(m.Key.ID), "p:")] = true
	}
	return b, err
}

// result is what the comparison of books and orders has shown.
type result struct {
	orders      int
	chargedOnce int // as they were sent
	discarded   int // not charged, because an operator has decided so
	lost        int // neither
	doubled     int // charges beyond the first of an order
	wrong       int // charges that no order asks for, and balances that are not what the charges say
}

func (r result) right() bool { return r.lost == 0 && r.doubled == 0 && r.wrong == 0 }

// compare looks for every order that was sent in the books.
func compare(sent []order, b books) result {
	r := result{orders: len(sent)}
	asked := make(map[string]bool)
	for _, o := range sent {
		asked[o.OrderID] = true
		charges := b.charges[o.OrderID]
		switch {
		case len(charges) == 0 && b.discarded[o.OrderID]:
			r.discarded++
		case len(charges) == 0:
			r.lost++
		case b.discarded[o.OrderID] || charges[0] != charge{o.Account, o.Cents / instalmentsAtLeast1(o)}:
			r.wrong++
		case len(charges) == 1:
			r.chargedOnce++
		}
		r.doubled += max(0, len(charges)-1)
	}
	balances := make(map[string]int64)
	for id, charges := range b.charges {
		if !asked[id] {
			r.wrong++
		}
		for _, c := range charges {
			balances[c.account] += c.cents
		}
	}
	for name, cents := range balances {
		if _, known := b.balances[name]; !known && cents != 0 {
			r.wrong++
		}
	}
	for name, balance := range b.balances {
		if balance != openingBalance-balances[name] {
			r.wrong++
		}
	}
	return r
}

func (r result) show(out io.Writer) error {
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, n int, note string) { fmt.Fprintf(t, "%s\t%d\t%s\n", name, n, note) }
	row("orders", r.orders, "that the shop has sent, some of them twice")
	row("charged once", r.chargedOnce, "as they were sent")
	row("discarded", r.discarded, "by an operator, and not charged")
	row("lost", r.lost, "neither charged nor decided about")
	row("doubled", r.doubled, "charges beyond the first of an order")
	row("wrong", r.wrong, "charges and balances that no order explains")
	return t.Flush()
}
