//go:build !unix

package fleet

import (
	"os"
	"os/exec"
)

var signals = map[Kind]os.Signal{SIGKILL: os.Kill}

func (p *process) resume() {}

func (p *process) writeStacks() {}

func isolate(*exec.Cmd) {}
