package fleet

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func TestStill(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	await := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); still(pid) != want; {
			if time.Now().After(deadline) {
				t.Fatalf("still is %t all the time", !want)
			}
			<-time.After(time.Millisecond)
		}
	}
	if still(pid) {
		t.Error("a process that runs stands still")
	}
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		await(true)
		if !still(pid) {
			t.Error("it cannot be asked twice")
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		await(false)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the end of the process was taken from whoever waits for it")
	}
	await(true)
}
