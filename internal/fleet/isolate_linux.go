package fleet

import (
	"os/exec"
	"syscall"
)

// isolate sees to it that the process goes on when the parent dies, even if it was just
// being stopped: it then finds its input at the end, and leaves.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = isolated()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGCONT // for one that runs it is nothing
}
