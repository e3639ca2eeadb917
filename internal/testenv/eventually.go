package testenv

import (
	"testing"
	"time"
)

// eventuallyTimeout is long, because only a test that fails waits for its end.
const eventuallyTimeout = 30 * time.Second

// Eventually waits until a condition holds, and fails the test if it still does not
// after 30 seconds. what says what was waited for. It must be called from the
// goroutine of the test.
func Eventually(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	EventuallyEvery(tb, 2*time.Millisecond, what, condition)
}

// EventuallyEvery is Eventually for a condition that may be asked for only now and then.
func EventuallyEvery(tb testing.TB, pause time.Duration, what string, condition func() bool) {
	tb.Helper()
	deadline := time.NewTimer(eventuallyTimeout)
	defer deadline.Stop()
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			tb.Fatalf("testenv: not within %v: %s", eventuallyTimeout, what)
		}
	}
}
