package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/host"
)

// parentVariable makes the test program a parent of one process that sleeps.
const parentVariable = "MILLPOND_TEST_PARENT_LOG"

func TestMain(m *testing.M) {
	if log := os.Getenv(parentVariable); log != "" {
		process, err := host.StartProcess(sleep(log))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(process.PID())
		select {}
	}
	goleak.VerifyTestMain(m)
}

func sleep(log string) host.Command {
	return host.Command{Path: "/bin/sleep", Args: []string{"1000"}, Dir: "/", Log: log}
}

func TestProcessEndsWhenKilled(t *testing.T) {
	process, err := host.StartProcess(sleep(filepath.Join(t.TempDir(), "log")))
	if err != nil {
		t.Fatal(err)
	}
	if !host.Alive(process.PID()) || process.Err() != nil {
		t.Error("a process that was just started does not run")
	}
	children, err := host.Children(os.Getpid())
	if err != nil || len(children) != 1 || children[0] != process.PID() {
		t.Errorf("children are %v (%v), want %d", children, err, process.PID())
	}
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := process.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
	if host.Alive(process.PID()) {
		t.Error("it is still alive")
	}
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("signal after the end: %v", err)
	}
}

// A parent that is killed, whatever its threads did meanwhile, takes its children along.
func TestProcessDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("only Linux has the signal; elsewhere there is nothing to promise")
		return
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"="+filepath.Join(t.TempDir(), "log"))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	if !host.Alive(child) {
		t.Fatal("the child does not run")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	testenv.Eventually(t, "the child ends", func() bool { return !host.Alive(child) })
}

// A thread that ends must not take the processes along that were started near it.
func TestProcessOutlivesThreads(t *testing.T) {
	process, err := host.StartProcess(sleep(filepath.Join(t.TempDir(), "log")))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	const threads = 50
	for range threads {
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			done <- struct{}{}
		}()
	}
	for range threads {
		<-done
	}
	if !host.Alive(process.PID()) {
		t.Error("the process ended with a thread")
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Whoever waits for a process to be gone must not wait for its parent to notice.
func TestZombieIsNotAlive(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !host.Alive(cmd.Process.Pid) {
		t.Error("a running process is not alive")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the killed process is a zombie", func() bool { return !host.Alive(cmd.Process.Pid) })
	_ = cmd.Wait()
}

func TestStartProcessMissing(t *testing.T) {
	_, err := host.StartProcess(host.Command{Path: "/nonexistent", Log: filepath.Join(t.TempDir(), "log")})
	if err == nil {
		t.Fatal("a missing program was started")
	}
}

func TestRunShowsOutput(t *testing.T) {
	err := host.Run(t.Context(), host.Command{Path: "/bin/sh", Args: []string{"-c", "echo what is wrong; exit 3"}})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "what is wrong") {
		t.Errorf("the error is %v", err)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got := host.Tail(path, 0); got != "" {
		t.Errorf("a missing file has the tail %q", got)
	}
	text := strings.Repeat("x", 10_000) + "\nearlier\nlast\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := host.Tail(path, 0); !strings.HasSuffix(got, "\n\tearlier\n\tlast") || len(got) > 3000 {
		t.Errorf("the tail is %q", got)
	}
	if got := host.Tail(path, int64(len(text)-len("last\n"))); got != "\n\tlast" {
		t.Errorf("the tail from the last line on is %q", got)
	}
}
