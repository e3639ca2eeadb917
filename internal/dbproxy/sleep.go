package dbproxy

import "time"

// coarse is how much earlier than needed the interruptible part of a wait ends.
const coarse = 5 * time.Millisecond

// sleepUntil waits for a moment; false means that quit was closed first.
func sleepUntil(moment time.Time, quit <-chan struct{}) bool {
	if rest := time.Until(moment) - coarse; rest > 0 {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-quit:
			return false
		}
	}
	for rest := time.Until(moment); rest > 0; rest = time.Until(moment) {
		sleepPrecisely(rest)
	}
	return true
}
