package batch

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// longest is how long a delivery may take in a batch, and then alone: what router compares with
// the time that a broker waits for an ack.
func longest(c *Config, inFlight int) time.Duration {
	alone := c.Claim + c.Handler + c.Commit
	return 2*alone + c.Commit + time.Duration(inFlight+1)*c.Time
}

// Handlers that all take their whole time hold nobody for longer than that, whatever the store
// takes of its own, and although their batch is lost in the end.
func TestSlowHandlersHoldNobodyForLong(t *testing.T) {
	const most = 200
	for what, config := range map[string]Config{
		"the defaults":         {Claim: 10 * time.Second, Handler: 30 * time.Second, Commit: 10 * time.Second, Time: 200 * time.Millisecond, Places: 4},
		"one place":            {Claim: 10 * time.Second, Handler: 30 * time.Second, Commit: 10 * time.Second, Time: 200 * time.Millisecond, Places: 1},
		"slow commits":         {Claim: time.Second, Handler: 30 * time.Second, Commit: time.Minute, Time: 200 * time.Millisecond, Places: 4},
		"slow claims":          {Claim: time.Minute, Handler: time.Second, Commit: time.Second, Time: time.Second, Places: 4},
		"a batch of long time": {Claim: time.Second, Handler: 10 * time.Second, Commit: time.Second, Time: 10 * time.Second, Places: 1},
	} {
		for _, claim := range []time.Duration{config.Time - time.Millisecond, config.Claim - time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, func(to *Config) {
					ended := to.Ended
					*to = config
					to.Size, to.From, to.Ended = 32, 2, ended
				})
				c.store.commit = errors.Join(stores.ErrNotCommitted, stores.ErrBatchLost)
				c.store.takes = [3]time.Duration{claim, config.Commit - time.Millisecond, config.Commit - time.Millisecond}
				var (
					all  sync.WaitGroup
					took time.Duration
				)
				for i := range most {
					all.Go(func() {
						begun := time.Now()
						alone := func() { <-time.After(config.Claim + config.Handler + config.Commit) }
						c.one(name(i), func(_ string, isAlone bool) error {
							if isAlone {
								alone()
							} else {
								<-time.After(config.Handler)
							}
							return nil
						})
						c.mu.Lock()
						again := c.verdicts[name(i)].Apart
						c.mu.Unlock()
						if again {
							alone()
						}
						c.mu.Lock()
						defer c.mu.Unlock()
						took = max(took, time.Since(begun))
					})
				}
				all.Wait()
				if limit := longest(&config, most); took > limit {
					t.Errorf("%s, claims of %s: somebody was held for %s, and is said to be for %s at most", what, claim, took, limit)
				} else {
					t.Logf("%s: %s of %s", what, took, limit)
				}
			})
		}
	}
}
