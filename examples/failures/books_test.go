package main

import (
	"maps"
	"testing"
)

func TestCompare(t *testing.T) {
	a := order{OrderID: "a", Account: "x", Cents: 10, Instalments: 1}
	b := order{OrderID: "b", Account: "y", Cents: 30, Instalments: 3}
	chargeA, chargeB := charge{"x", 10}, charge{"y", 10}
	right := func() books {
		return books{
			charges:   map[string][]charge{"a": {chargeA}, "b": {chargeB}},
			balances:  map[string]int64{"x": openingBalance - 10, "y": openingBalance - 10, "z": openingBalance},
			discarded: map[string]bool{},
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*books)
		want   result
	}{
		{"right", func(*books) {}, result{chargedOnce: 2}},
		{"lost", func(b *books) { delete(b.charges, "a"); b.balances["x"] += 10 }, result{chargedOnce: 1, lost: 1}},
		{"discarded", func(b *books) { delete(b.charges, "a"); b.balances["x"] += 10; b.discarded["a"] = true }, result{chargedOnce: 1, discarded: 1}},
		{"charged and discarded", func(b *books) { b.discarded["a"] = true }, result{chargedOnce: 1, wrong: 1}},
		{"doubled", func(b *books) { b.charges["a"] = append(b.charges["a"], chargeA); b.balances["x"] -= 10 }, result{chargedOnce: 1, doubled: 1}},
		{"half of the transaction", func(b *books) { b.balances["x"] += 10 }, result{chargedOnce: 2, wrong: 1}},
		{"another amount", func(b *books) { b.charges["a"][0].cents = 9; b.balances["x"]++ }, result{chargedOnce: 1, wrong: 1}},
		{"nobody has ordered it", func(b *books) { b.charges["c"] = []charge{{"z", 5}}; b.balances["z"] -= 5 }, result{chargedOnce: 2, wrong: 1}},
		{"no such account", func(b *books) { b.charges["a"][0].account = "w"; b.balances["x"] += 10 }, result{chargedOnce: 1, wrong: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			is := right()
			tt.change(&is)
			tt.want.orders = 2
			got := compare([]order{a, b}, is)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if fine := tt.name == "right" || tt.name == "discarded"; got.right() != fine {
				t.Errorf("right is %t", got.right())
			}
		})
	}
}

// The story is told with the numbers of docs/tutorials/break-and-repair.md.
func TestOrders(t *testing.T) {
	accounts, ids := make(map[string]int), make(map[string]bool)
	declined, invoices := 0, 0
	silent := maps.Clone(timeouts())
	for _, o := range orders() {
		accounts[o.Account]++
		ids[o.OrderID] = true
		if o.Card == declinedCard {
			declined++
		}
		if o.Instalments == 0 {
			invoices++
		}
		if silent[o.OrderID] > 0 && (o.Card == declinedCard || o.Instalments == 0 || accounts[o.Account] > 1) {
			t.Errorf("%s fails in two ways", o.OrderID)
		}
	}
	if len(ids) != orderCount || len(accounts) != orderCount-2 || declined != 3 || invoices != 5 || len(silent) != 5 {
		t.Errorf("%d ids, %d accounts, %d declined, %d on invoice, %d time out", len(ids), len(accounts), declined, invoices, len(silent))
	}
}
