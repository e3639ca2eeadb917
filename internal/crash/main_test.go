package crash

import (
	"os"
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

// seedOf returns the seed of a test, and prints how to repeat it.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rotation.Seed(t)
	t.Logf("seed %d: %s", seed, replay(t, seed))
	return seed
}
