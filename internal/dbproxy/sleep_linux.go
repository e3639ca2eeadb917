package dbproxy

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// sleepPrecisely sleeps in the kernel. The timers of the runtime wait in whole
// milliseconds while it is idle.
func sleepPrecisely(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// By default the kernel may add 50 µs to save power. Failing changes nothing else.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // the caller looks at the clock again
}
