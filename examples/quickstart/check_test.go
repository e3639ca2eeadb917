package main

import (
	"crypto/sha256"
	"iter"
	"reflect"
	"testing"
)

// text is an input in memory.
type text []string

func (t text) total() int     { return len(t) }
func (t text) String() string { return "text" }

func (t text) lines() iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		for i, s := range t {
			if !yield(line{i + 1, []byte(s)}, nil) {
				return
			}
		}
	}
}

const (
	eventA      = `{"event_id":"a","sku":"x","quantity":1}`
	eventAOther = `{"event_id":"a","sku":"x","quantity":2}`
	eventASpace = `{"event_id":"a", "sku":"x","quantity":1}`
	eventB      = `{"event_id":"b","sku":"y","quantity":5}`
	noEvent     = `nothing`
)

func TestCompare(t *testing.T) {
	a, b := order{"a", "x", 1}, order{"b", "y", 5}
	type counts struct{ once, doubled, lost, altered, quarantined, stockWrong int }
	for _, tt := range []struct {
		name        string
		input       text
		deductions  []order
		quarantined []string
		stock       map[string]int64 // by how much it is less
		want        counts
	}{
		{"right", text{eventA, eventB, eventA}, []order{a, b}, nil, map[string]int64{"x": 1, "y": 5}, counts{once: 2}},
		{"doubled", text{eventA, eventB}, []order{a, a, a, b}, nil, map[string]int64{"x": 3, "y": 5}, counts{once: 1, doubled: 2}},
		{"lost", text{eventA, eventB}, []order{a}, nil, map[string]int64{"x": 1, "y": 0}, counts{once: 1, lost: 1}},
		{"altered", text{eventA}, []order{{"a", "x", 7}}, nil, map[string]int64{"x": 7}, counts{altered: 1}},
		{"half of the transaction", text{eventA, eventB}, []order{a, b}, nil, map[string]int64{"x": 1, "y": 0}, counts{once: 2, stockWrong: 1}},
		{"no such article", text{eventA}, []order{a}, nil, nil, counts{once: 1, stockWrong: 1}},
		{"unreadable, kept", text{noEvent, noEvent}, nil, []string{noEvent}, nil, counts{quarantined: 1}},
		{"unreadable, lost", text{noEvent}, nil, nil, nil, counts{lost: 1}},
		{"readable, kept", text{eventB}, nil, []string{eventB}, nil, counts{quarantined: 1}},
		{"conflict, kept", text{eventA, eventAOther}, []order{a}, []string{eventAOther}, map[string]int64{"x": 1}, counts{once: 1, quarantined: 1}},
		{"conflict, the second was first", text{eventA, eventAOther}, []order{{"a", "x", 2}}, []string{eventA}, map[string]int64{"x": 2}, counts{once: 1, quarantined: 1}},
		{"conflict, one is lost", text{eventA, eventAOther}, []order{a}, nil, map[string]int64{"x": 1}, counts{once: 1, lost: 1}},
		{"conflict, both are lost", text{eventA, eventAOther}, nil, nil, nil, counts{lost: 2}},
		{"conflict of the same order", text{eventASpace, eventA}, []order{a}, []string{eventASpace}, map[string]int64{"x": 1}, counts{once: 1, quarantined: 1}},
		{"of earlier runs", text{eventA}, []order{a, b}, nil, map[string]int64{"x": 1, "y": 5}, counts{once: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := ledger{deductions: map[string][]order{}, stock: map[string]int64{}, quarantined: map[hash][]quarantined{}}
			for _, o := range tt.deductions {
				l.deductions[o.EventID] = append(l.deductions[o.EventID], o)
				l.rows++
			}
			for sku, less := range tt.stock {
				l.stock[sku] = openingStock - less
			}
			for _, s := range tt.quarantined {
				l.quarantined[sha256.Sum256([]byte(s))] = []quarantined{{reason: "why", seen: 1}}
			}
			r, err := compare(tt.input, ledger{}, l)
			if err != nil {
				t.Fatal(err)
			}
			got := counts{r.AppliedOnce, r.Doubled, r.Lost, r.Altered, 0, r.StockWrong}
			if q := r.Quarantined["why"]; q != nil {
				got.quarantined = q.Events
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if wrong := got.doubled+got.lost+got.altered+got.stockWrong > 0; wrong == r.Right() {
				t.Errorf("Right() = %t", r.Right())
			}
		})
	}
}

func TestGeneratedEvents(t *testing.T) {
	read := func(g generated) (lines []string) {
		for l, err := range g.lines() {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(l.text))
		}
		return lines
	}
	lines := read(generated{seed: 1, count: 2000})
	if !reflect.DeepEqual(lines, read(generated{seed: 1, count: 2000})) {
		t.Error("one seed gave different events")
	}
	if reflect.DeepEqual(lines, read(generated{seed: 2, count: 2000})) {
		t.Error("two seeds gave the same events")
	}
	ids := make(map[string]string)
	for _, l := range lines {
		o, err := parseOrder([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		if other, known := ids[o.EventID]; known && other != l {
			t.Errorf("%s and %s have one id", other, l)
		}
		ids[o.EventID] = l
	}
	if resent := len(lines) - len(ids); len(ids) != 2000 || resent < 50 || resent > 150 {
		t.Errorf("%d events, %d sent again", len(ids), resent)
	}
}
