package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for _, test := range []struct {
		values []figure
		want   span
	}{
		{[]figure{3, 1, 2}, span{Median: 2, Low: 1, High: 3, Min: 1, Max: 3}},
		{[]figure{5, 9, 1, 4, 3}, span{Median: 4, Low: 3, High: 5, Min: 1, Max: 9}},
		{[]figure{4, 1, 2, 3}, span{Median: 2.5, Low: 1, High: 4, Min: 1, Max: 4}},
		{[]figure{7}, span{Median: 7, Low: 7, High: 7, Min: 7, Max: 7}},
	} {
		if got := spanOf(test.values); got != test.want {
			t.Errorf("%v: %v, want %v", test.values, got, test.want)
		}
	}
	for _, values := range [][]figure{nil, {1, unknown}} {
		if got := spanOf(values); got.Median.known() || got.text() != "–" {
			t.Errorf("%v: %v", values, got)
		}
	}
	if b, err := json.Marshal(spanOf(nil)); err != nil || string(b) != `{"median":null,"lower_quartile":null,"upper_quartile":null,"min":null,"max":null}` {
		t.Errorf("%s, %v", b, err)
	}
}

// twoRecipes is a table in which the second recipe has the given share of the first
// one's rate and uses more CPU in the same proportion, repeat by repeat.
func twoRecipes(g goal, shares ...float64) groupResult {
	first, second := contender{workers: g.workers}, contender{workers: g.workers}
	first.recipe, second.recipe = &recipe{name: g.against}, &recipe{name: g.recipe, against: g.against}
	for i, share := range shares {
		rate := 1000 * float64(i+1) // what else happens changes from repeat to repeat
		first.samples = append(first.samples, sample{Rate: rate, Client: 60, Server: 40, WAL: 1})
		second.samples = append(second.samples, sample{
			Rate: rate * share, Client: figure(60 / share), Server: figure(40 / share), WAL: 1, P50: time.Millisecond,
		})
	}
	return (&group{name: g.group, title: g.group}).result([]contender{first, second})
}

func TestRatiosAreTakenRepeatByRepeat(t *testing.T) {
	g := goal{group: "first", recipe: "b", against: "a", workers: 1}
	r := twoRecipes(g, 0.5, 0.25, 0.75)
	of := r.row("b", 1)
	for name, ratio := range map[string]span{"rate": of.RateRatio, "CPU": of.CPURatio} {
		want := span{Median: 0.5, Min: 0.25, Max: 0.75}
		if math.Abs(float64(ratio.Median-want.Median)+float64(ratio.Min-want.Min)+float64(ratio.Max-want.Max)) > 1e-9 {
			t.Errorf("%s ratio: %v, want %v", name, ratio, want)
		}
	}
	if of.P50 != 1 {
		t.Errorf("p50 is %v ms", of.P50)
	}
}

func TestGoals(t *testing.T) {
	for _, test := range []struct {
		share   float64
		verdict string
	}{{0.74, "missed"}, {0.79, "floor reached"}, {0.86, "aim reached"}} {
		r := report{Groups: []groupResult{twoRecipes(goals[0], test.share)}}
		got := judge(&r)
		if len(got) != 1 || got[0].Verdict != test.verdict {
			t.Errorf("%v: %+v, want %s", test.share, got, test.verdict)
		}
	}
	for _, test := range []struct {
		rate    float64
		verdict string
	}{{1999, "missed"}, {2000, "floor reached"}, {5001, "aim reached"}} {
		c := contender{recipe: &recipe{name: retryWorker}, workers: goalWorkers, samples: []sample{{Rate: test.rate}, {Rate: test.rate}}}
		got := judge(&report{Groups: []groupResult{(&group{name: "failures"}).result([]contender{c})}})
		if len(got) != 1 || got[0].Verdict != test.verdict || float64(got[0].Rate.Median) != test.rate {
			t.Errorf("%v a second: %+v, want %s", test.rate, got, test.verdict)
		}
	}
	slow := callResult{Name: inboxFirstSight, Time: span{Median: 5100}, Allocs: mostAllocs}
	fast := callResult{Name: inboxFirstSight, Time: span{Median: 4900}, Allocs: mostAllocs}
	greedy := callResult{Name: inboxFirstSight, Time: span{Median: 4900}, Allocs: mostAllocs + 0.5}
	got := judge(&report{Middleware: []callResult{slow, fast, greedy}})
	if len(got) != 3 || got[0].Verdict != "missed" || got[1].Verdict != "reached" || got[2].Verdict != "missed" {
		t.Errorf("%+v", got)
	}
}

func TestLatenciesAreGoals(t *testing.T) {
	at := func(name string, p50, p99 time.Duration) contender {
		s := sample{Rate: 100, P50: p50, P99: p99}
		return contender{recipe: &recipe{name: name}, workers: manyInFlight, samples: []sample{s, s}}
	}
	for _, test := range []struct {
		group   string
		of      []contender
		verdict string
	}{
		{"offered-few", []contender{at(inboxTwenty, time.Millisecond, 0), at(batchesTwenty, 1200*time.Microsecond, 0)}, "floor reached"},
		{"offered-few", []contender{at(inboxTwenty, time.Millisecond, 0), at(batchesTwenty, 1400*time.Microsecond, 0)}, "missed"},
		{"offered-many", []contender{at(batchesOverload, time.Millisecond, 49*time.Millisecond)}, "floor reached"},
		{"offered-many", []contender{at(batchesOverload, time.Millisecond, 51*time.Millisecond)}, "missed"},
	} {
		got := judge(&report{Groups: []groupResult{(&group{name: test.group}).result(test.of)}})
		if len(got) != 1 || got[0].Verdict != test.verdict {
			t.Errorf("%+v: %+v, want %s", test.of, got, test.verdict)
		}
	}
}

func TestTablesAreAligned(t *testing.T) {
	tables := table{head: []string{"goal", "µs"}, rows: [][]string{{"a", "1.00"}, {"longer", "–"}}}
	for markdown, want := range map[bool]string{
		false: "goal      µs\n------  ----\na       1.00\nlonger     –\n\n",
		true:  "| goal   |   µs |\n| ------ | ---: |\n| a      | 1.00 |\n| longer |    – |\n\n",
	} {
		w := &strings.Builder{}
		tables.write(w, markdown)
		if w.String() != want {
			t.Errorf("got\n%swant\n%s", w, want)
		}
	}
}

func TestTurnsAreJoined(t *testing.T) {
	milliseconds := func(all ...int) (latencies []time.Duration) {
		for _, n := range all {
			latencies = append(latencies, time.Duration(n)*time.Millisecond)
		}
		return latencies
	}
	got := joined([]sample{
		{Rate: 100, Client: 10, Server: unknown, WAL: 4, Commits: 1, latencies: milliseconds(9, 1)},
		{Rate: 300, Client: 30, Server: unknown, WAL: 8, Commits: 1, latencies: milliseconds(5)},
	})
	// 100 messages a second, and then 300: as many take 10 ms, and then 3.33.
	if math.Abs(got.Rate-150) > 1e-9 || got.Client != 20 || got.Server.known() || got.WAL != 6 || got.Commits != 1 {
		t.Errorf("%+v", got)
	}
	if got.P50 != 5*time.Millisecond || got.P99 != 9*time.Millisecond || got.latencies != nil {
		t.Errorf("p50 %v, p99 %v, latencies %v", got.P50, got.P99, got.latencies)
	}
}
