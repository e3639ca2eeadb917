//go:build unix && !linux

package host

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func sysProcAttr(c Command) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: c.Account.credential()}
}

// Children returns the ids of the living processes whose parent is pid.
func Children(pid int) ([]int, error) {
	list, err := exec.Command("ps", "-axo", "pid=,ppid=,stat=").Output()
	if err != nil {
		return nil, fmt.Errorf("host: list processes: %w", err)
	}
	var children []int
	for line := range strings.Lines(string(list)) {
		var child, parent int
		var state string
		if _, err := fmt.Sscan(line, &child, &parent, &state); err == nil && parent == pid && !strings.HasPrefix(state, "Z") {
			children = append(children, child)
		}
	}
	return children, nil
}

// Alive reports whether a process exists.
func Alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// Stopped reports whether a process stands still because of a signal, or has ended.
func Stopped(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.ContainsAny(string(state[:min(1, len(state))]), "TZ")
}
