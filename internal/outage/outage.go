// Package outage logs and paces an operation that is repeated until it works.
package outage

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/cenkalti/backoff/v5"
)

// Outage logs a failing operation: the first failure, then once a minute, and when it works
// again. It is safe for concurrent use.
type Outage struct {
	logger watermill.LoggerAdapter
	what   string

	mu     sync.Mutex
	times  int
	last   error
	since  time.Time
	logged time.Time
	pace   *backoff.ExponentialBackOff
}

const logEvery = time.Minute

// New returns an Outage of an operation, such as "Receiving".
func New(logger watermill.LoggerAdapter, what string) *Outage {
	return &Outage{logger: logger, what: what, pace: Pace()}
}

// Failed notes a failure, and returns how long to wait before the next try.
func (o *Outage) Failed(err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.times == 0 {
		o.since = now
		o.pace.Reset()
	}
	o.times++
	o.last = err
	if o.times == 1 || now.Sub(o.logged) >= logEvery {
		o.logged = now
		o.logger.Error(o.what+" fails; it is tried again until it works", err, watermill.LogFields{"times": o.times, "since": o.since})
	}
	return o.pace.NextBackOff()
}

// Problem returns the last error, nil if the operation works.
func (o *Outage) Problem() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times == 0 {
		return nil
	}
	return o.last
}

// Over notes that the operation works.
func (o *Outage) Over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times > 0 {
		o.logger.Info(o.what+" works again", watermill.LogFields{"failed_times": o.times, "failed_for": time.Since(o.since)})
		o.times = 0
	}
}

// Pace returns growing pauses between tries.
func Pace() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = 100 * time.Millisecond
	b.MaxInterval = 5 * time.Second
	b.Reset()
	return b
}
