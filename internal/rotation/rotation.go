// Package rotation spreads over the days what is too much for each run of the tests: of
// several variations of one test, some have their turn today, and all in a soak. A test
// logs whose turn it is, so that what fails can be repeated by setting the day.
package rotation

import (
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// DayVariable sets the day, such as 2026-11-22. Unset, it is today in UTC.
	DayVariable = "MILLPOND_TEST_DAY"
	// SoakVariable asks for all variations, if it is not empty. The crash harness takes it
	// for the number of its kills.
	SoakVariable = "MILLPOND_SOAK"
)

// Soak reports whether all variations are asked for.
func Soak() bool { return os.Getenv(SoakVariable) != "" }

// Turn returns the n of all whose turn it is today, or all in a soak or with a seed. On successive days
// each has its turn before one has it again. Which are first differs from test to test, so
// that each day has some of everything.
func Turn[T ~string](tb testing.TB, n int, all ...T) []T {
	tb.Helper()
	return TurnEvery(tb, 1, n, all...)
}

// TurnEvery is Turn for what is tested on one of so many days only, because it has its own turn:
// the next have theirs when it is tested again. If both went on each day, some might never meet.
func TurnEvery[T ~string](tb testing.TB, days, n int, all ...T) []T {
	tb.Helper()
	if Soak() || os.Getenv(SeedVariable) != "" || n >= len(all) {
		return all
	}
	day := day(tb)
	today := turn(dayNumber(day)/days+int(crc32.ChecksumIEEE([]byte(tb.Name()))), n, all)
	tb.Logf("on %s it is the turn of %s, of %s: %s sets the day, and %s runs all",
		day.Format(time.DateOnly), join(today), join(all), DayVariable, SoakVariable)
	return today
}

// Some returns those of some named variations whose turn it is, as Turn does.
func Some[T ~string, V any](tb testing.TB, n int, all map[T]V) map[T]V {
	tb.Helper()
	today := make(map[T]V)
	for _, name := range Turn(tb, n, slices.Sorted(maps.Keys(all))...) {
		today[name] = all[name]
	}
	return today
}

// Today reports whether it is the turn of one of all, of which each day has one. Tests of
// several packages share the turns if they have the same name.
func Today(tb testing.TB, one string, all ...string) bool {
	tb.Helper()
	return slices.Contains(Turn(tb, 1, all...), one)
}

// Every reports whether a test has its turn today, which it has every so many days: of several tests
// some have theirs each day.
func Every(tb testing.TB, days int) bool {
	tb.Helper()
	if Soak() || os.Getenv(SeedVariable) != "" {
		return true
	}
	day := day(tb)
	wait := (dayNumber(day) + int(crc32.ChecksumIEEE([]byte(tb.Name())))) % days
	if wait > 0 {
		tb.Logf("on %s it is not its turn, which it has every %d days: %s sets the day, and %s runs all",
			day.Format(time.DateOnly), days, DayVariable, SoakVariable)
	}
	return wait == 0
}

var storesOfSQL = []string{"mariadb", "mysql", "postgres", "postgres+sql", "sqlite"}

// StoreDays is within how many days OnStore has had each group on each store.
const StoreDays = 10

// OnStore returns the groups of the conformance suite whose turn it is on one of the stores with
// SQL: within two days each group is on one of them.
func OnStore(tb testing.TB, store string, groups ...string) []string {
	tb.Helper()
	if Soak() {
		return groups
	}
	at := slices.Index(storesOfSQL, store)
	if at < 0 {
		tb.Fatalf("rotation: %s is none of %q, which share out the groups", store, storesOfSQL)
	}
	day := day(tb)
	var today []string
	for i, name := range groups {
		if (i+dayNumber(day))%StoreDays == at*StoreDays/len(storesOfSQL) {
			today = append(today, name)
		}
	}
	tb.Logf("on %s it is the turn of %s on %s: %s sets the day, and %s runs all",
		day.Format(time.DateOnly), join(today), store, DayVariable, SoakVariable)
	return today
}

func join[T ~string](names []T) string {
	var text strings.Builder
	for i, name := range names {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString(string(name))
	}
	return text.String()
}

func dayNumber(day time.Time) int {
	const seconds = 24 * 60 * 60
	return int(day.Unix() / seconds)
}

func day(tb testing.TB) time.Time {
	tb.Helper()
	given := os.Getenv(DayVariable)
	if given == "" {
		return time.Now().UTC()
	}
	day, err := time.Parse(time.DateOnly, given)
	if err != nil {
		tb.Fatalf("%s is %q: give a day such as %s", DayVariable, given, time.DateOnly)
	}
	return day
}

// turn cuts all into blocks of n, the last of which is filled up from the first.
func turn[T any](day, n int, all []T) []T {
	blocks := (len(all) + n - 1) / n
	today := make([]T, 0, n)
	for i := range n {
		today = append(today, all[(day%blocks*n+i)%len(all)])
	}
	return today
}
