package rotation

import (
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// SeedVariable repeats a run of the crash harness. Whoever sets it names what is run, so all have
// their turn.
const SeedVariable = "MILLPOND_SEED"

// Seed returns the seed of a test: the given one, a new one in a soak, and else always the same, so
// that what fails was broken by a change.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	given := os.Getenv(SeedVariable)
	if given == "" && Kills(tb) > 0 {
		return rand.Uint64N(1_000_000_000) //nolint:gosec // it keeps no secret
	}
	if given == "" {
		return uint64(crc32.ChecksumIEEE([]byte(tb.Name())))
	}
	seed, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		tb.Fatalf("%s: %v", SeedVariable, err)
	}
	return seed
}

// Kills is how many workers must be killed on each store, 0 outside a soak.
func Kills(tb testing.TB) int {
	tb.Helper()
	given := os.Getenv(SoakVariable)
	if given == "" {
		return 0
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		tb.Fatalf("%s is %q: give a number of kills", SoakVariable, given)
	}
	return n
}
