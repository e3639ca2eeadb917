package host

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

func procStat(pid int) (parent int, alive bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// "pid (name) state ppid …", where the name may have spaces and parentheses.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, err == nil && !bytes.ContainsAny(fields[0], "ZX")
}
