package sqs

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/cenkalti/backoff/v5"
)

// outage logs something that fails again and again: when it begins, once a minute, and
// when it is over.
type outage struct {
	logger watermill.LoggerAdapter
	what   string

	mu     sync.Mutex
	times  int
	last   error
	since  time.Time
	logged time.Time
	pause  *backoff.ExponentialBackOff
}

const logOutageEvery = time.Minute

// failed returns how long to wait before the next try.
func (o *outage) failed(err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.times == 0 {
		o.since = now
		o.pause = backoff.NewExponentialBackOff()
		o.pause.InitialInterval, o.pause.MaxInterval = 200*time.Millisecond, 10*time.Second
	}
	o.times++
	o.last = err
	if first := o.times == 1; first || now.Sub(o.logged) >= logOutageEvery {
		o.logged = now
		o.logger.Error(o.what+" fails; it is tried again until it works", err, watermill.LogFields{"times": o.times, "since": o.since})
	}
	return o.pause.NextBackOff()
}

// problem returns why it fails now, nil if it does not.
func (o *outage) problem() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times == 0 {
		return nil
	}
	return o.last
}

func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.times > 0 {
		o.logger.Info(o.what+" works again", watermill.LogFields{"failed_times": o.times, "failed_for": time.Since(o.since)})
		o.times = 0
	}
}
