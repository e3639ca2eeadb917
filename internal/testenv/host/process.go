package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Command describes a server process.
type Command struct {
	Path    string
	Args    []string
	Dir     string   // working directory
	Env     []string // the whole environment; nothing is inherited
	Account *Account // nil: run as ourselves
	Log     string   // file that stdout and stderr are appended to

	// OrphanSignal is sent to the process when ours dies, however it dies. Zero
	// means SIGKILL. Only Linux does this.
	OrphanSignal syscall.Signal
}

// Process is a running child process. It is safe for concurrent use.
type Process struct {
	process *os.Process
	done    chan struct{}
	err     error // how it ended; valid once done is closed
}

// StartProcess starts a process in a group of its own. It ends when it ends itself,
// is signalled, or this process dies.
func StartProcess(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("host: open the log: %w", err)
	}
	cmd := c.cmd(context.Background())
	cmd.Stdout, cmd.Stderr = log, log
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The orphan signal is tied to the life of the thread that forked, so the
		// thread is kept for as long as the child runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := errors.Join(cmd.Start(), log.Close())
		if err == nil {
			p.process = cmd.Process
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("host: start %s: %w", c.Path, err)
	}
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.process.Pid }

// Done is closed when the process has ended and is reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended; nil for exit status 0, or if it still runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Signal sends a signal; a process that has ended is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("host: signal process %d: %w", p.PID(), err)
	}
	return nil
}

// Wait waits until the process has ended; it returns an error only if ctx ends first.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("host: waiting for process %d to end: %w", p.PID(), context.Cause(ctx))
	}
}

// Run runs a command to its end. The error of one that fails has the end of its
// output in it. Log is not used.
func Run(ctx context.Context, c Command) error {
	runtime.LockOSThread() // see StartProcess
	defer runtime.UnlockOSThread()
	cmd := c.cmd(ctx)
	cmd.WaitDelay = 5 * time.Second // a killed command may have left children with its output open
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("host: run %s: %w%s", c.Path, err, quoteTail(output.Bytes()))
	}
	return nil
}

func (c Command) cmd(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...) // #nosec G204 -- test servers, never input
	cmd.Dir, cmd.Env = c.Dir, c.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.SysProcAttr = sysProcAttr(c)
	return cmd
}

const tailBytes = 2048

// Tail returns the end of what a log file has from an offset on, indented and ready to
// follow an error text; "" if there is nothing to show.
func Tail(path string, offset int64) string {
	file, err := os.Open(path) // #nosec G304 -- a log of ours
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		offset = max(offset, info.Size()-tailBytes)
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return ""
	}
	b, _ := io.ReadAll(file)
	return quoteTail(b)
}

func quoteTail(b []byte) string {
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return ""
	}
	if len(b) > tailBytes {
		b = b[len(b)-tailBytes:]
	}
	return "\n\t" + string(bytes.ReplaceAll(b, []byte("\n"), []byte("\n\t")))
}
