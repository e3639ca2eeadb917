package broker

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/pause"
)

// kind is a sort of broker: how the parent has one of its own, and how a worker reaches it.
type kind struct {
	// start starts a server with what the service reads.
	start func(t *testing.T, s setup) server
	// open opens the broker in a worker, which tells the recorder of the adapter's own
	// points, if there are any.
	open func(ctx context.Context, s setup, r *recorder) (brokers.Broker, error)
	// vary gives seeds different settings. In a soak there may be more of them.
	vary func(seed uint64, soak bool, s *setup)
	// places are the adapter's own points at which workers are killed.
	places func(s setup) []place
	// absence is after how long a worker that stands still has lost its deliveries.
	absence time.Duration
	// returns: a worker that leaves gives back what it holds, so that duplicates may be
	// left when all have left.
	returns bool
}

// server is a broker of the parent's.
type server interface {
	address() string // for workers
	Kill() error     // without warning
	Start(ctx context.Context) error

	// client is for publishing. The test closes it.
	client(ctx context.Context) (brokers.Broker, error)
	// left is how many messages the broker still has for the service, those that it has
	// handed out included. With an error it is not known.
	left(ctx context.Context) (int64, error)
	// dropped is how many messages the broker has put aside for good.
	dropped(ctx context.Context) (int64, error)
	// connected is how many consumers have not left.
	connected(ctx context.Context) (int, error)
	// describe says what the broker knows about who has what.
	describe(ctx context.Context) string
}

var kinds = map[string]*kind{}

// outages kills the broker n times, at random moments of a run that takes this long, and
// lets it come back.
func outages(ctx context.Context, s server, seed uint64, n int, during time.Duration, happened func(string)) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	slot := during / time.Duration(n+1)
	for range n {
		if !pause.Sleep(ctx, slot/2+time.Duration(rng.Int64N(int64(slot/2)))) {
			return nil
		}
		happened("the broker is killed")
		if err := s.Kill(); err != nil {
			return err
		}
		pause.Sleep(ctx, time.Duration(rng.Int64N(int64(2*time.Second))))
		if err := s.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		happened("the broker is back")
	}
	return nil
}
