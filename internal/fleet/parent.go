package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Run feeds the workers until the source is at its end and every message, and every
// duplicate, was acked or dropped and [Config.AtRest] is content; then it lets the workers leave. It returns when no worker
// process is left, in any case. The report is complete even with an error.
//
// When ctx ends, Run delivers nothing more, lets the workers drain and returns the
// cause of ctx. What is then unsettled is lost, as the parent keeps it in memory.
// Other errors: the source's, a worker that cannot be started or keeps exiting by
// itself, one that fails at the end, although it had settled everything.
//
// A source that blocks does not keep Run from returning; its goroutine ends the next
// time that it yields.
func Run(ctx context.Context, c Config) (Report, error) {
	c.setDefaults()
	if err := c.validate(); err != nil {
		return Report{}, err
	}
	p := &parent{
		Config:  c,
		rng:     random(c.Seed, streamWorkers),
		events:  make(chan func()),
		done:    make(chan struct{}),
		members: make([]*member, c.Workers),
		hits:    make(map[string]int),
		open:    make(map[unit]*owed),
		report:  Report{Kills: make(map[Kind]int), Restarts: make([]int, c.Workers)},
	}
	return p.run(ctx)
}

// parent is the state of one Run. All of it belongs to the goroutine of run; others
// reach it by posting functions.
type parent struct {
	Config

	rng    *rand.Rand
	events chan func()
	done   chan struct{} // closed when nothing posted will be run any more
	wg     sync.WaitGroup

	members   []*member
	due       []*owed        // to be delivered as soon as a worker is free
	open      map[unit]*owed // by key, the one that was delivered last and is not acked
	held      int            // owed, and not yet acked
	published bool           // the source gives nothing more
	torn      error          // why, if it was not its end
	moments   []Kill         // by time, still to come
	points    []Kill         // by announcement, still to come
	hits      map[string]int
	lastID    uint64

	asking   bool // Config.AtRest is asked
	rests    bool // and has said so
	stopping bool
	failure  error
	report   Report
}

// item is what the goroutine of the source passes on.
type item struct {
	owed *owed
	err  error
}

func (p *parent) run(ctx context.Context) (Report, error) {
	started := time.Now()
	for _, kill := range p.Kills {
		if kill.Point != "" {
			p.points = append(p.points, kill)
		} else {
			p.moments = append(p.moments, kill)
		}
	}
	slices.SortStableFunc(p.moments, func(a, b Kill) int { return cmp.Compare(a.After, b.After) })
	for i := range p.members {
		p.members[i] = &member{index: i}
		p.start(p.members[i])
	}
	progress := time.NewTicker(p.ProgressEvery)
	defer progress.Stop()
	if p.Visibility > 0 {
		p.after(p.Visibility/4, p.expire)
	}

	source := p.publish()
	cancelled := ctx.Done()
	p.strikeDue()
	for !p.stopping || p.up() > 0 {
		if !p.stopping && (p.failure != nil || p.held == 0 && p.published && p.atRest(ctx)) {
			p.stop()
			continue
		}
		next := source
		if p.stopping || p.next() >= 0 || p.held >= p.Unsettled || !p.anyFree() {
			next = nil
		}
		select {
		case <-cancelled:
			cancelled = nil
			p.fail(context.Cause(ctx))
		case got, more := <-next:
			if !p.take(got, more) {
				source = nil
			}
		case event := <-p.events:
			event()
		case <-progress.C:
			if p.Progress != nil {
				p.report.Duration = time.Since(started)
				p.Progress(p.snapshot())
			}
		}
		p.dispatch()
	}
	close(p.done)
	p.wg.Wait()
	p.report.Duration = time.Since(started)
	if p.failure == nil && p.torn != nil {
		p.failure = fmt.Errorf("fleet: source: %w", p.torn)
	}
	return p.snapshot(), p.failure
}

func (p *parent) snapshot() Report {
	report := p.report.clone()
	report.Unsettled = p.held
	return report
}

// post has f run by the parent's goroutine.
func (p *parent) post(f func()) {
	select {
	case p.events <- f:
	case <-p.done:
	}
}

// after has f run by the parent's goroutine in a while, if it still runs then.
func (p *parent) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() { p.post(f) })
}

// fail ends the run with the first error.
func (p *parent) fail(err error) {
	if p.failure == nil {
		p.failure = err
	}
}

// atRest reports whether the workers may leave, and sees to it that this becomes known.
func (p *parent) atRest(ctx context.Context) bool {
	if p.AtRest == nil || p.rests {
		return true
	}
	if !p.asking {
		p.asking = true
		p.wg.Go(func() {
			rests := p.AtRest(ctx)
			p.post(func() {
				p.rests = rests
				p.after(askEvery, func() { p.asking = false })
			})
		})
	}
	return false
}

// askEvery is how long Config.AtRest is left in peace.
const askEvery = 50 * time.Millisecond

// publish reads the source apart, as it may block.
func (p *parent) publish() <-chan item {
	items := make(chan item)
	go func() {
		defer close(items)
		for o, err := range plan(p.Config) {
			select {
			case items <- item{o, err}:
			case <-p.done:
				return
			}
		}
	}()
	return items
}

// take makes a delivery due, or reports that the source gives no more.
func (p *parent) take(got item, more bool) bool {
	if !more || got.err != nil {
		p.published = true
		p.torn = got.err
		return false
	}
	if got.owed.duplicate {
		p.report.Duplicates++
	} else {
		p.report.Published++
	}
	p.held++
	p.due = append(p.due, got.owed)
	return true
}

func (p *parent) start(m *member) {
	if p.stopping || p.failure != nil {
		return
	}
	cmd := p.Command(m.index)
	cmd.Env = append(cmd.Environ(), workerEnv+"="+strconv.Itoa(m.index))
	proc, err := launch(cmd, &p.wg,
		func(proc *process, f toParent) { p.post(func() { p.receive(proc, f) }) },
		func(proc *process, err error) { p.post(func() { p.exited(proc, err) }) },
	)
	if err != nil {
		p.fail(fmt.Errorf("fleet: worker %d cannot be started: %w", m.index, err))
		return
	}
	proc.member, m.proc = m, proc
	if m.starts++; m.starts > 1 {
		p.report.Restarts[m.index]++
	}
	points := make(map[string]bool)
	for _, kill := range p.points {
		points[kill.Point] = true
	}
	proc.outbox.add(toWorker{Hello: &hello{
		Worker: m.index, Start: m.starts, InFlight: p.InFlight,
		Points: slices.Sorted(maps.Keys(points)),
	}})
	p.Observe(Event{Kind: EventStarted, Worker: m.index, PID: proc.pid()})
}

func (p *parent) receive(proc *process, f toParent) {
	switch {
	case f.Settle != nil:
		p.settle(proc, *f.Settle)
	case f.Announce != nil:
		p.announced(proc, *f.Announce)
	case f.Ready:
		proc.ready = true
		p.Observe(Event{Kind: EventReady, Worker: proc.index, PID: proc.pid()})
	}
}
