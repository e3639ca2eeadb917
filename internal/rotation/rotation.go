// Package rotation spreads over the days what is too much for each run of the tests: of
// several variations of one test, some have their turn today, and all in a soak. A test
// logs whose turn it is, so that what fails can be repeated by setting the day.
package rotation

import (
	"hash/crc32"
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

// Turn returns the n of all whose turn it is today, or all in a soak. On successive days
// each has its turn before one has it again. Which are first differs from test to test, so
// that each day has some of everything.
func Turn(tb testing.TB, n int, all ...string) []string {
	tb.Helper()
	if Soak() || n >= len(all) {
		return all
	}
	day := day(tb)
	const seconds = 24 * 60 * 60
	today := turn(int(day.Unix()/seconds)+int(crc32.ChecksumIEEE([]byte(tb.Name()))), n, all)
	tb.Logf("on %s it is the turn of %s, of %s: %s sets the day, and %s runs all",
		day.Format(time.DateOnly), strings.Join(today, ", "), strings.Join(all, ", "), DayVariable, SoakVariable)
	return today
}

// Today reports whether it is the turn of one of all, of which each day has one. Tests of
// several packages share the turns if they have the same name.
func Today(tb testing.TB, one string, all ...string) bool {
	tb.Helper()
	return slices.Contains(Turn(tb, 1, all...), one)
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
func turn(day, n int, all []string) []string {
	blocks := (len(all) + n - 1) / n
	today := make([]string, 0, n)
	for i := range n {
		today = append(today, all[(day%blocks*n+i)%len(all)])
	}
	return today
}
