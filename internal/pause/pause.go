// Package pause waits: no longer than a context, and with jitter, so that callers that
// failed together do not all try again at the same moment.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// Jitter returns a random duration between half of d and d.
func Jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2) //nolint:gosec // spreads load, keeps no secret
}

// Sleep waits for d, or until ctx ends; then it reports false.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
