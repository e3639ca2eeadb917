package upgradetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/testenv"
)

// deliveries go on one after the other.
type deliveries struct {
	count   atomic.Int64
	longest time.Duration
	ends    chan struct{}
	ended   chan error
}

func deliver(one func(id string) error) *deliveries {
	d := &deliveries{ends: make(chan struct{}), ended: make(chan error, 1)}
	go func() {
		for i := 0; ; i++ {
			begun := time.Now()
			if err := one(fmt.Sprint("old ", i)); err != nil {
				d.ended <- fmt.Errorf("delivery %d: %w", i, err)
				return
			}
			d.longest = max(d.longest, time.Since(begun))
			d.count.Add(1)
			select {
			case <-d.ends:
				d.ended <- nil
				return
			default:
			}
		}
	}()
	return d
}

// some waits for a few more.
func (d *deliveries) some(t *testing.T, when string) {
	t.Helper()
	from := d.count.Load()
	testenv.Eventually(t, "deliveries "+when, func() bool { return d.count.Load() > from+5 || len(d.ended) > 0 })
}

// stop returns how long the longest took.
func (d *deliveries) stop(t *testing.T) time.Duration {
	t.Helper()
	close(d.ends)
	if err := <-d.ended; err != nil {
		t.Fatal(err)
	}
	return d.longest
}
