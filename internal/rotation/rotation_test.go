package rotation

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

var all = []string{"a", "b", "c", "d", "e"}

func TestEachHasItsTurn(t *testing.T) {
	t.Setenv(SoakVariable, "")
	for n := 1; n <= len(all)+1; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			begin := time.Date(2026, 2, 26, 0, 0, 0, 0, time.UTC)
			seen := make(map[string]bool)
			for day := range (len(all) + n - 1) / n {
				t.Setenv(DayVariable, begin.AddDate(0, 0, day).Format(time.DateOnly))
				today := Turn(t, n, all...)
				if len(today) != min(n, len(all)) {
					t.Errorf("the turn of %v, want %d", today, n)
				}
				if !slices.Equal(today, Turn(t, n, all...)) {
					t.Error("two answers on one day")
				}
				for _, name := range today {
					seen[name] = true
				}
			}
			if len(seen) != len(all) {
				t.Errorf("only %v have had their turn", seen)
			}
		})
	}
}

func TestEveryTestHasItsTurnOnOneOfItsDays(t *testing.T) {
	t.Setenv(SoakVariable, "")
	const days = 3
	for day := range 10 {
		turns := 0
		for next := range days {
			t.Setenv(DayVariable, time.Date(2026, 12, 26+day+next, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
			if Every(t, days) {
				turns++
			}
		}
		if turns != 1 {
			t.Errorf("%d turns in %d days", turns, days)
		}
	}
	t.Setenv(SoakVariable, "1")
	if !Every(t, days) {
		t.Error("a soak runs all, and it has no turn")
	}
}

func TestEachMeetsEach(t *testing.T) {
	t.Setenv(SoakVariable, "")
	outer := []string{"1", "2", "3", "4", "5"} // as many as all
	met := make(map[string]bool)
	for day := range len(outer) * len(all) {
		t.Setenv(DayVariable, time.Date(2026, 2, 26+day, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
		for _, one := range Turn(&recorder{TB: t, name: "outer"}, 1, outer...) {
			for _, other := range TurnEvery(&recorder{TB: t, name: one}, len(outer), 1, all...) {
				met[one+other] = true
			}
		}
	}
	if len(met) != len(outer)*len(all) {
		t.Errorf("only %v have met", met)
	}
}

func TestEachGroupIsOnOneStoreWithinTwoDaysAndOnAllInTurn(t *testing.T) {
	t.Setenv(SoakVariable, "")
	met := make(map[string]int)
	var lately []string // today, and yesterday
	for day := range StoreDays {
		t.Setenv(DayVariable, time.Date(2026, 2, 26+day, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
		if day%2 == 0 {
			lately = nil
		}
		for _, store := range storesOfSQL {
			for _, group := range OnStore(t, store, all...) {
				met[store+": "+group]++
				lately = append(lately, group)
			}
		}
		if slices.Sort(lately); day%2 == 1 && !slices.Equal(lately, all) {
			t.Errorf("until day %d it was the turn of %v", day, lately)
		}
	}
	if want := len(storesOfSQL) * len(all); len(met) != want {
		t.Errorf("%d groups have met stores, want %d: %v", len(met), want, met)
	}
}

func TestTestsBeginDifferently(t *testing.T) {
	t.Setenv(SoakVariable, "")
	t.Setenv(DayVariable, "2026-11-22")
	first := make(map[string]bool)
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { first[Turn(t, 1, all...)[0]] = true })
	}
	if len(first) < 3 {
		t.Errorf("of 20 tests all have %v", first)
	}
}

func TestSoakRunsAll(t *testing.T) {
	t.Setenv(SoakVariable, "1")
	if today := Turn(t, 1, all...); !Soak() || !slices.Equal(today, all) {
		t.Errorf("the turn of %v, want all", today)
	}
}

func TestSeedRepeatsAny(t *testing.T) {
	t.Setenv(SoakVariable, "")
	if seed := Seed(t); seed == 0 || seed != Seed(t) || Kills(t) != 0 {
		t.Errorf("the seed %d", seed)
	}
	t.Setenv(SeedVariable, "42")
	if today := Turn(t, 1, all...); Seed(t) != 42 || !slices.Equal(today, all) {
		t.Errorf("the turn of %v with the seed %d, want all", today, Seed(t))
	}
}

func TestUnreadableDayFails(t *testing.T) {
	t.Setenv(SoakVariable, "")
	t.Setenv(DayVariable, "tomorrow")
	r := &recorder{TB: t}
	func() {
		defer func() { _ = recover() }()
		Turn(r, 1, all...)
	}()
	if r.failure != `MILLPOND_TEST_DAY is "tomorrow": give a day such as 2006-01-02` {
		t.Errorf("the failure is %q", r.failure)
	}
}

type recorder struct {
	testing.TB
	name, failure string
}

func (r *recorder) Name() string { return r.name }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r.failure)
}

func TestOneOfThreeHasEachDay(t *testing.T) {
	t.Setenv(SoakVariable, "")
	for day := range 6 {
		t.Setenv(DayVariable, time.Date(2026, 2, 26+day, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
		turns := 0
		for _, one := range all {
			if Today(t, one, all...) {
				turns++
			}
		}
		if turns != 1 {
			t.Errorf("on day %d it is the turn of %d", day, turns)
		}
	}
}
