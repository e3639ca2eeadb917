package budget_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/stores"
)

func TestWhatAnAttemptSpends(t *testing.T) {
	t.Parallel()
	before := budget.Spent{Attempts: 2, Uncounted: 1}
	for _, test := range []struct {
		class   stores.Class
		counted bool // before it began
		want    budget.Spent
	}{
		{stores.ClassTransient, false, budget.Spent{Attempts: 3, Uncounted: 1}},
		{stores.ClassTransient, true, before},
		{stores.ClassInterrupted, false, budget.Spent{Attempts: 2, Uncounted: 2}},
		{stores.ClassInterrupted, true, budget.Spent{Attempts: 1, Uncounted: 2}},
		{stores.ClassUnknown, false, budget.Spent{Attempts: 2, Uncounted: 2}},
	} {
		if got := before.After(test.class, test.counted); got != test.want {
			t.Errorf("%s, counted %v: %+v, want %+v", test.class, test.counted, got, test.want)
		}
	}
}

func TestEveryBudgetEnds(t *testing.T) {
	t.Parallel()
	limits := budget.Limits{Attempts: 3, Uncounted: 5, Age: time.Hour}
	for name, test := range map[string]struct {
		class stores.Class
		spent budget.Spent
		age   time.Duration
		again bool
		why   string
	}{
		"first of three":  {stores.ClassTransient, budget.Spent{Attempts: 1}, 0, true, ""},
		"last of three":   {stores.ClassTransient, budget.Spent{Attempts: 3}, 0, false, "3 of 3 attempts failed"},
		"permanent":       {stores.ClassPermanent, budget.Spent{Attempts: 1}, 0, false, "a permanent error"},
		"outputs":         {stores.ClassOutputs, budget.Spent{Attempts: 1}, 0, false, "cannot be published"},
		"interrupted":     {stores.ClassInterrupted, budget.Spent{Attempts: 3, Uncounted: 4}, 0, true, ""},
		"too often":       {stores.ClassUnknown, budget.Spent{Uncounted: 5}, 0, false, "5 of 5 attempts were interrupted"},
		"too old":         {stores.ClassTransient, budget.Spent{Attempts: 1}, time.Hour, false, "at most 1h0m0s"},
		"of the program":  {"odd", budget.Spent{Attempts: 3}, 0, false, "3 of 3"},
		"old interrupted": {stores.ClassInterrupted, budget.Spent{Uncounted: 1}, 2 * time.Hour, false, "2h0m0s ago"},
	} {
		if again, why := limits.Again(test.class, test.spent, test.age); again != test.again || !strings.Contains(why, test.why) {
			t.Errorf("%s: %v, %q", name, again, why)
		}
	}
}

func TestAttemptThatEndedItsProcessSpendsTheBudget(t *testing.T) {
	t.Parallel()
	limits := budget.Limits{Attempts: 3}
	for attempts, gone := range map[int]bool{1: false, 2: false, 3: true, 4: true} {
		if limits.Gone(stores.FailureState{Presumed: true, Attempts: attempts}) != gone {
			t.Errorf("after %d attempts", attempts)
		}
	}
	if limits.Gone(stores.FailureState{Attempts: 3}) {
		t.Error("an attempt that has ended in a known way")
	}
}

func TestPausesGrowToTheirMaximum(t *testing.T) {
	t.Parallel()
	backoff := budget.Backoff{Min: time.Second, Max: time.Minute}
	for failures, most := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1 << 40: time.Minute} {
		for range 100 {
			if got := backoff.Pause(failures); got < most/2 || got > most {
				t.Fatalf("after %d failures %s, want %s to %s", failures, got, most/2, most)
			}
		}
	}
}

func TestMarksSurviveWrapping(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("b: %w", budget.Delay(budget.Mark(errors.New("a"), stores.ClassPermanent), time.Minute))
	class, marked := budget.Marked(err)
	after, delayed := budget.Delayed(err)
	if !marked || class != stores.ClassPermanent || !delayed || after != time.Minute || err.Error() != "b: a" {
		t.Errorf("%v %q %v %s: %v", marked, class, delayed, after, err)
	}
	if budget.Mark(nil, stores.ClassPermanent) != nil || budget.Delay(nil, time.Minute) != nil {
		t.Error("nil does not stay nil")
	}
}

func TestPatienceWithoutAnEnd(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration][2]bool{0: {true, false}, time.Hour: {true, false}} {
		if wait, giveUp := (budget.Limits{Age: 1<<63 - 1}).Patience(age); wait != want[0] || giveUp != want[1] {
			t.Errorf("after %s: wait %v, give up %v", age, wait, giveUp)
		}
	}
	if wait, giveUp := (budget.Limits{Age: time.Hour}).Patience(2 * time.Hour); wait || !giveUp {
		t.Errorf("after twice the age: wait %v, give up %v", wait, giveUp)
	}
}
