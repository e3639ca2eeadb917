package crash

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
	goleak.VerifyTestMain(m)
}

const (
	seedEnv = "MILLPOND_SEED"
	soakEnv = rotation.SoakVariable
)

// seedOf returns the seed of a test and prints it: the given one, a new one in a soak, and
// else always the same, so that what fails was broken by a change.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(crc32.ChecksumIEEE([]byte(t.Name())))
	if soakKills(t) > 0 {
		seed = rand.Uint64N(1_000_000_000)
	}
	if given := os.Getenv(seedEnv); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("seed %d: %s", seed, replay(t, seed))
	return seed
}
