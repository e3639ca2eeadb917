package broker

import (
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
)

func TestMain(m *testing.M) {
	if fleet.IsWorker() {
		os.Exit(work())
	}
	if told := os.Getenv(poisonEnv); told != "" {
		os.Exit(eat(told))
	}
	goleak.VerifyTestMain(m)
}

const (
	seedEnv = "MILLPOND_SEED"
	soakEnv = rotation.SoakVariable
)

// seedOf returns the seed of a test: the given one, a new one in a soak, and else always
// the same, so that what fails was broken by a change.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	given := os.Getenv(seedEnv)
	if given == "" && soakKills(t) > 0 {
		return rand.Uint64N(1_000_000_000)
	}
	if given == "" {
		return uint64(crc32.ChecksumIEEE([]byte(t.Name())))
	}
	seed, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", seedEnv, err)
	}
	return seed
}

// turn returns the n of all whose turn it is, or all in a soak and in a replay, which names
// what it runs.
func turn(t *testing.T, n int, all ...string) []string {
	t.Helper()
	return turnEvery(t, 1, n, all...)
}

// turnEvery is turn for a test that has its own turn every so many days.
func turnEvery(t *testing.T, days, n int, all ...string) []string {
	t.Helper()
	if os.Getenv(seedEnv) != "" {
		return all
	}
	return rotation.TurnEvery(t, days, n, all...)
}

// soakKills is how many workers must be killed on each store, 0 without MILLPOND_SOAK.
func soakKills(t *testing.T) int {
	t.Helper()
	given := os.Getenv(soakEnv)
	if given == "" {
		return 0
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q: give a number of kills", soakEnv, given)
	}
	return n
}
