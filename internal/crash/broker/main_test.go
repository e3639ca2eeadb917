package broker

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/fleet"
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
