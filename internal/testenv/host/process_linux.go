package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func sysProcAttr(c Command) *syscall.SysProcAttr {
	signal := c.OrphanSignal
	if signal == 0 {
		signal = syscall.SIGKILL
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: signal, Credential: c.Account.credential()}
}

// Children returns the ids of the living processes whose parent is pid.
func Children(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("host: list processes: %w", err)
	}
	var children []int
	for _, stat := range stats {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			continue
		}
		if parent, alive := procStat(child); alive && parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}

// Alive reports whether a process exists and is more than a zombie that nobody has
// reaped yet.
func Alive(pid int) bool {
	_, alive := procStat(pid)
	return alive
}

// Stopped reports whether a process stands still because of a signal: every thread of it
// does, or has ended. One that has ended stands still.
func Stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid))
	for _, thread := range threads {
		if state, _, ok := readStat(thread); ok && !strings.ContainsAny(state, "TtZX") {
			return false
		}
	}
	return true
}

func procStat(pid int) (parent int, alive bool) {
	state, parent, ok := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	return parent, ok && !strings.ContainsAny(state, "ZX")
}

// readStat reads what /proc has of a process or thread that is there.
func readStat(path string) (state string, parent int, ok bool) {
	b, err := os.ReadFile(path) // #nosec G304 -- of /proc
	if err != nil {
		return "", 0, false
	}
	// "pid (name) state ppid …", where the name may have spaces and parentheses.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return string(fields[0]), parent, err == nil
}
