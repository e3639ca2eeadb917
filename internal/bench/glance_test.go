package main

import (
	"strings"
	"testing"
)

func TestGlance(t *testing.T) {
	r := &report{Groups: []groupResult{
		{Name: "first", Rows: []row{
			{Recipe: noInboxRouter, Workers: 16, Rate: 15117, WAL: 144, Commits: 1, Trips: 3},
			{Recipe: millpondRouter, Workers: 16, Rate: 10745, WAL: 423, Commits: 1, Trips: 3, Against: noInboxRouter, RateRatio: span{Median: 0.78, Min: 0.69, Max: 0.79}},
			{Recipe: textbookRouter, Workers: 16, Rate: 12865, WAL: 475, Commits: 1, Trips: 4, Against: noInboxRouter, RateRatio: span{Median: 0.87, Min: 0.82, Max: 0.91}},
			{Recipe: fiveStepRouter, Workers: 16, Rate: 5558, WAL: 1807, Commits: 2, Trips: 6, Against: noInboxRouter, RateRatio: span{Median: 0.42, Min: 0.35, Max: 0.42}},
		}},
		{Name: "far-first", Rows: []row{
			{Recipe: noInboxRouter, Workers: 1},
			{Recipe: millpondRouter, Workers: 1, Against: noInboxRouter, RateRatio: span{Median: 0.96, Min: 0.95, Max: 0.98}},
		}},
	}}
	var w strings.Builder
	r.writeGlance(&w)
	for _, want := range []string{
		"| millpond                               |        3.00 |    1.00 |   423 | 10745 | 0.78 |                   0.96 |",
		"| insert by hand                         |        4.00 |    1.00 |   475 | 12865 | 0.87 |                      – |",
		"\nmillpond                                " + strings.Repeat("█", 31) + strings.Repeat(" ", 11) + "0.78\n",
	} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("there is no %q in\n%s", want, w.String())
		}
	}
	w.Reset()
	(&report{}).writeGlance(&w)
	if w.Len() > 0 {
		t.Errorf("of nothing that was measured it says %q", w.String())
	}
}
