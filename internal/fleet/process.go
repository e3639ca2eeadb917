package fleet

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// member is a worker as the parent sees it: a place that one process after another
// takes.
type member struct {
	index  int
	starts int
	exits  int      // in a row, by itself, without having settled anything
	proc   *process // nil while it is down
}

// process is one run of the worker program. Its fields belong to the parent's
// goroutine, except for the outbox.
type process struct {
	*member

	cmd         *exec.Cmd
	outbox      *outbox
	outstanding map[uint64]*delivery

	ready   bool // has subscribed
	leaving bool // was asked to end, or killed: gets nothing more
	struck  bool // by a fault that ends it: its exit is no news
	stuck   bool // did not leave in time
	dead    bool // SIGKILL was sent: what it still says was said before
	pauses  int  // SIGSTOPs that are not over
}

// delivery is one that a process has got and not settled.
type delivery struct {
	id      uint64
	owed    *owed
	count   int
	since   time.Time
	expired bool // Visibility is over and another worker has it; this one's answer is void
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) kill() {
	p.leaving, p.struck, p.dead = true, true, true
	_ = p.cmd.Process.Kill() // fails only if it has ended
}

// launch starts a process. received and exited are called by a goroutine of its own,
// in the order in which things happened; wg counts the goroutines.
func launch(cmd *exec.Cmd, wg *sync.WaitGroup, received func(*process, toParent), exited func(*process, error)) (*process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	isolate(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, outbox: newOutbox(), outstanding: make(map[uint64]*delivery)}
	wg.Go(func() { p.outbox.sendTo(stdin) })
	wg.Go(func() {
		err := p.receive(stdout, received)
		if err != nil {
			_ = cmd.Process.Kill() // nothing it says can be understood any more
		}
		if waited := cmd.Wait(); err == nil {
			err = waited
		}
		p.outbox.close()
		exited(p, err)
	})
	return p, nil
}

// receive returns nil when the process has closed its output, be it in the middle of
// a frame.
func (p *process) receive(stdout io.Reader, received func(*process, toParent)) error {
	frames := gob.NewDecoder(bufio.NewReader(stdout))
	for {
		var f toParent
		switch err := frames.Decode(&f); {
		case err == nil:
			received(p, f)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		default:
			return fmt.Errorf("standard output is not what ConnectStdio writes: %w", err)
		}
	}
}

// outbox holds the frames for a process that does not read, because it stands still.
// What the parent sends is bounded by the deliveries in flight and the announcements
// that wait for an answer, so the outbox is too.
type outbox struct {
	mu     sync.Mutex
	frames []toWorker
	closed bool
	wake   chan struct{} // capacity 1
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) add(f toWorker) {
	o.mu.Lock()
	o.frames = append(o.frames, f)
	o.mu.Unlock()
	o.signal()
}

// close lets sendTo end once everything is sent.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) take() (frames []toWorker, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	frames, o.frames = o.frames, nil
	return frames, o.closed
}

func (o *outbox) sendTo(stdin io.WriteCloser) {
	defer func() { _ = stdin.Close() }()
	frames := gob.NewEncoder(stdin)
	for range o.wake {
		batch, closed := o.take()
		for _, f := range batch {
			if err := frames.Encode(f); err != nil {
				return // the process is gone; its exit is reported elsewhere
			}
		}
		if closed {
			return
		}
	}
}
