package fleet

import (
	"errors"

	"golang.org/x/sys/unix"
)

// still reports whether a child stands still because of a signal, with all its threads,
// or is gone. It takes nothing from whoever waits for the child.
func still(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0 || errors.Is(err, unix.ECHILD)
}
