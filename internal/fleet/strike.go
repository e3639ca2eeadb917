package fleet

import (
	"slices"
	"time"
)

// strikeDue inflicts the faults whose number of acks is reached.
func (p *parent) strikeDue() {
	for len(p.moments) > 0 && p.moments[0].After <= p.report.Acks {
		kill := p.moments[0]
		p.moments = p.moments[1:]
		p.after(kill.Delay, func() { p.strike(kill) })
	}
}

// strike hits the scheduled worker, or the next that is up.
func (p *parent) strike(kill Kill) {
	if p.stopping {
		return
	}
	for i := range p.members {
		m := p.members[(max(kill.Worker, 0)+i)%len(p.members)]
		if m.proc != nil && m.proc.ready && !m.proc.leaving {
			p.hurt(m.proc, kill)
			return
		}
	}
	p.after(5*time.Millisecond, func() { p.strike(kill) })
}

func (p *parent) hurt(proc *process, kill Kill) {
	if proc.dead {
		return
	}
	if err := proc.cmd.Process.Signal(signals[kill.Kind]); err != nil {
		return // it has just ended by itself
	}
	p.report.Kills[kill.Kind]++
	p.Observe(Event{Kind: EventKilled, Worker: proc.index, PID: proc.pid(), Fault: kill.Kind, Point: kill.Point})
	switch kill.Kind {
	case SIGKILL:
		proc.kill()
	case SIGTERM:
		proc.struck = true
		p.leave(proc)
	case SIGSTOP:
		proc.pauses++
		p.onceStill(proc, func() {
			p.after(kill.pause(), func() {
				if proc.pauses--; proc.pauses == 0 && proc.member.proc == proc {
					proc.resume()
				}
			})
		})
	}
}

// onceStill calls f when a process that is to stand still does, or need not any more. The
// signal takes a moment, in which a process on a busy machine gets far.
func (p *parent) onceStill(proc *process, f func()) {
	if proc.pauses > 0 && !p.stopping && proc.member.proc == proc && !still(proc.pid()) {
		p.after(time.Millisecond, func() { p.onceStill(proc, f) })
		return
	}
	f()
}

// announced lets a process go on, unless a fault is due at this point.
func (p *parent) announced(proc *process, a announce) {
	if proc.dead {
		return
	}
	p.Observe(Event{Kind: EventAnnounced, Worker: proc.index, PID: proc.pid(), Point: a.Point})
	p.hits[a.Point]++
	i := slices.IndexFunc(p.points, func(k Kill) bool { return k.Point == a.Point && k.hit() == p.hits[a.Point] })
	if i >= 0 && !p.stopping {
		kill := p.points[i]
		p.points = slices.Delete(p.points, i, i+1)
		p.hurt(proc, kill)
		if kill.Kind == SIGKILL {
			return
		}
	}
	answer := &proceed{ID: a.ID}
	if !slices.ContainsFunc(p.points, func(k Kill) bool { return k.Point == a.Point }) {
		answer.Disarm = a.Point
	}
	p.onceStill(proc, func() { proc.outbox.add(toWorker{Proceed: answer}) })
}
