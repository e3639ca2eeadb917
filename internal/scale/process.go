package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one that runs.
type process struct {
	command *exec.Cmd
	settled atomic.Int64
	ended   chan struct{}
	cpu     time.Duration // known when it has ended
}

func start(w worker) (*process, error) {
	setup, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.CommandContext(context.Background(), self), ended: make(chan struct{})} // #nosec G204 -- this program
	p.command.Env = append(os.Environ(), workerVariable+"="+string(setup))
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
				p.settled.Store(n)
			}
		}
		_ = p.command.Wait() // it may have been killed
		p.cpu = p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime()
	}()
	return p, nil
}

// processes are those of a cell. One that ends is followed by another.
type processes struct {
	mu     sync.Mutex
	live   []*process
	gone   time.Duration // CPU of those that have ended
	before int64         // that they had settled
	worker func(i int) worker
}

func startAll(n int, worker func(i int) worker) (*processes, error) {
	ps := &processes{worker: worker, live: make([]*process, n)}
	for i := range n {
		if err := ps.start(i); err != nil {
			ps.stop()
			return nil, err
		}
	}
	return ps, nil
}

func (ps *processes) start(i int) (err error) {
	ps.live[i], err = start(ps.worker(i))
	return err
}

// end sends a signal to one, waits until it has ended, and starts another.
func (ps *processes) end(i int, signal syscall.Signal) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.await(i, signal)
	return ps.start(i)
}

func (ps *processes) await(i int, signal syscall.Signal) {
	p := ps.live[i]
	if p == nil {
		return
	}
	_ = p.command.Process.Signal(signal)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		_ = p.command.Process.Kill()
		<-p.ended
	}
	ps.gone += p.cpu
	ps.before += p.settled.Load()
}

func (ps *processes) settled() int64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	n := ps.before
	for _, p := range ps.live {
		n += p.settled.Load()
	}
	return n
}

// stop asks all to leave, and returns the processor time of all that there were.
func (ps *processes) stop() time.Duration {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i := range ps.live {
		if ps.live[i] != nil {
			_ = ps.live[i].command.Process.Signal(syscall.SIGTERM)
		}
	}
	for i := range ps.live {
		ps.await(i, syscall.SIGTERM)
	}
	return ps.gone
}

// died is an error if one has ended by itself.
func (ps *processes) died() error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for i, p := range ps.live {
		select {
		case <-p.ended:
			return fmt.Errorf("process %d has ended: %v", i, p.command.ProcessState)
		default:
		}
	}
	return nil
}

// waitUntil asks again and again, until it is so.
func waitUntil(ctx context.Context, every, most time.Duration, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		done, err := is()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %w", most, ctx.Err())
		case <-ticker.C:
		}
	}
}
