//go:build unix

package fleet

import (
	"os"
	"syscall"
)

var signals = map[Kind]os.Signal{
	SIGKILL: syscall.SIGKILL,
	SIGSTOP: syscall.SIGSTOP,
	SIGTERM: syscall.SIGTERM,
}

func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// writeStacks lets a Go program write what its goroutines do, and end.
func (p *process) writeStacks() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) }

// isolated puts a process into a group of its own: a Ctrl-C at the terminal is for the
// parent alone, which then lets its workers drain. And should the parent die while the
// process stands still, the system continues and hangs up the orphaned group, unless it
// shares its session with init.
func isolated() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
