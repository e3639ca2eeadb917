//go:build unix && !linux

package fleet

import "os/exec"

func isolate(cmd *exec.Cmd) { cmd.SysProcAttr = isolated() }
