package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// exited makes everything that the process had not settled due again, and starts the
// next one.
func (p *parent) exited(proc *process, err error) {
	m := proc.member
	m.proc = nil
	p.Observe(Event{Kind: EventExited, Worker: m.index, PID: proc.pid(), Err: err})
	for _, id := range slices.Sorted(maps.Keys(proc.outstanding)) {
		if d := proc.outstanding[id]; !d.expired {
			p.redeliver(d)
		}
	}
	switch {
	case proc.stuck:
		p.fail(fmt.Errorf("fleet: worker %d did not leave within %s and was killed", m.index, p.StopTimeout))
	case p.stopping:
		if err != nil && !proc.struck {
			p.fail(fmt.Errorf("fleet: worker %d failed when it was to leave: %w", m.index, err))
		}
	case proc.struck:
		p.start(m)
	default:
		p.report.Exits++
		if m.exits++; m.exits >= p.MaxExits {
			if err == nil {
				err = errors.New("exit status 0")
			}
			p.fail(fmt.Errorf("fleet: worker %d exited %d times in a row by itself without settling anything, lastly with: %w", m.index, m.exits, err))
			return
		}
		p.after(50*time.Millisecond<<min(m.exits, 6), func() { p.start(m) })
	}
}

// stop lets all workers leave.
func (p *parent) stop() {
	p.stopping = true
	for _, m := range p.members {
		if proc := m.proc; proc != nil {
			proc.resume()
			proc.outbox.close()
			p.leave(proc)
		}
	}
}

// leave ends the process by force if it is not gone in time. That is an error only at the end of the
// run, when no fault excuses it.
func (p *parent) leave(proc *process) {
	proc.leaving = true
	p.after(p.StopTimeout, func() {
		if proc.member.proc != proc || proc.dead {
			return
		}
		proc.stuck = p.stopping
		proc.writeStacks()
		p.after(quitting, func() {
			if proc.member.proc == proc {
				proc.kill()
			}
		})
	})
}

// quitting is how long a process may take to write what it does.
const quitting = 2 * time.Second

func (p *parent) up() int {
	n := 0
	for _, m := range p.members {
		if m.proc != nil {
			n++
		}
	}
	return n
}
