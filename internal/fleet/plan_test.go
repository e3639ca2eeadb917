package fleet

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// planOf writes a plan down: the number of each message, with + for a duplicate.
func planOf(t testing.TB, c Config) []string {
	t.Helper()
	c.setDefaults()
	var steps []string
	for o, err := range plan(c) {
		if err != nil {
			t.Fatal(err)
		}
		step := fmt.Sprint(o.number)
		if o.duplicate {
			step += "+"
		}
		steps = append(steps, step)
	}
	return steps
}

func TestSeedDecidesPlan(t *testing.T) {
	c := Config{Source: source(numbers(1000)), Seed: 42, Duplicates: 0.5, Apart: 100, Reorder: 10}
	first := planOf(t, c)
	if again := planOf(t, c); !reflect.DeepEqual(first, again) {
		t.Error("one seed gave two plans")
	}
	c.Seed++
	if other := planOf(t, c); reflect.DeepEqual(first, other) {
		t.Error("two seeds gave one plan")
	}
}

func TestSeedDecidesKills(t *testing.T) {
	schedule := func(seed uint64) []Kill { return RandomKills(seed, 50, 10_000, 4, SIGKILL, SIGSTOP) }
	first := schedule(42)
	if !reflect.DeepEqual(first, schedule(42)) {
		t.Error("one seed gave two schedules")
	}
	if reflect.DeepEqual(first, schedule(43)) {
		t.Error("two seeds gave one schedule")
	}
	for i, kill := range first {
		if kill.After < i*200 || kill.After >= (i+1)*200 {
			t.Errorf("kill %d is due after %d acks, not in its share of the run", i, kill.After)
		}
	}
}

func TestPlanKeepsWhatThePublisherSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 200).Draw(t, "messages")
		c := Config{
			Source:     source(numbers(n)),
			Seed:       rapid.Uint64().Draw(t, "seed"),
			Duplicates: rapid.Float64Range(0, 1).Draw(t, "duplicates"),
			Apart:      rapid.IntRange(1, 50).Draw(t, "apart"),
			Reorder:    rapid.IntRange(1, 30).Draw(t, "reorder"),
		}
		c.setDefaults()
		firsts := make(map[int]int) // number → position
		position := 0
		held := 0
		for o, err := range plan(c) {
			if err != nil {
				t.Fatal(err)
			}
			at, seen := firsts[o.number]
			switch {
			case o.duplicate && !seen:
				t.Fatalf("the duplicate of %d comes before it", o.number)
			case !o.duplicate && seen:
				t.Fatalf("%d comes twice as the first", o.number)
			case o.duplicate && position-at > 2*c.Apart+2:
				t.Fatalf("the duplicate of %d comes %d deliveries after it, at most about %d are wanted", o.number, position-at, c.Apart)
			case !o.duplicate:
				firsts[o.number] = position
				held = max(held, o.number-len(firsts))
			}
			position++
		}
		if len(firsts) != n {
			t.Fatalf("%d of %d messages are in the plan", len(firsts), n)
		}
		if held > c.Reorder-1+n {
			t.Fatalf("%d messages waited in a window of %d", held, c.Reorder)
		}
		if c.Duplicates == 1 && position != 2*n || c.Duplicates == 0 && position != n {
			t.Fatalf("%d deliveries of %d messages with duplicates = %g", position, n, c.Duplicates)
		}
	})
}

// Without disorder the plan is the source.
func TestPlainPlan(t *testing.T) {
	steps := planOf(t, Config{Source: source(numbers(5))})
	if want := []string{"1", "2", "3", "4", "5"}; !reflect.DeepEqual(steps, want) {
		t.Errorf("plan %v, want %v", steps, want)
	}
}
