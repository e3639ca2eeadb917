package dbproxy

import (
	"math/rand/v2"
	"sync"
	"time"
)

// RandomFaults gives each COMMIT its own chance of a fault. Which fault the nth COMMIT
// through the proxy has depends on the seed and on n alone, so a seed replays as far
// as the order of the COMMITs does. The zero value means none.
type RandomFaults struct {
	Seed uint64

	// Probabilities, each from 0 to 1, together at most 1.
	LoseCommitReply   float64 // the server commits, the client does not learn it
	LoseCommitRequest float64 // the COMMIT does not reach the server
	DelayCommitReply  float64 // the reply comes late, by up to MaxDelay

	MaxDelay time.Duration
}

// Fault is what happens to one COMMIT. The zero value is nothing.
type Fault struct {
	loseRequest bool
	loseReply   bool
	delay       time.Duration
}

// nth returns the fault of the nth COMMIT.
func (f RandomFaults) nth(n uint64) Fault {
	r := rand.New(rand.NewPCG(f.Seed, n)) // #nosec G404 -- it must be repeatable
	p := r.Float64()
	switch {
	case p < f.LoseCommitReply:
		return Fault{loseReply: true}
	case p < f.LoseCommitReply+f.LoseCommitRequest:
		return Fault{loseRequest: true}
	case p < f.LoseCommitReply+f.LoseCommitRequest+f.DelayCommitReply:
		return Fault{delay: time.Duration(r.Float64() * float64(f.MaxDelay))}
	}
	return Fault{}
}

// faults is what the proxy was told to do to the COMMITs that come.
type faults struct {
	mu           sync.Mutex
	loseReplies  int
	loseRequests int
	delay        time.Duration
	random       RandomFaults
	commits      uint64 // requests since random was set
}

// request returns what happens to a COMMIT that the client has sent.
func (f *faults) request() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	happens := f.random.nth(f.commits)
	f.commits++
	if f.loseRequests > 0 {
		f.loseRequests--
		return Fault{loseRequest: true}
	}
	return happens
}

// reply adds to the fault of a COMMIT what waits for replies.
func (f *faults) reply(happens Fault) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	happens.delay = max(happens.delay, f.delay)
	if f.loseReplies > 0 {
		f.loseReplies--
		happens.loseReply = true
	}
	return happens
}

// LoseCommitReply lets the server execute the next n COMMITs, swallows their replies,
// whatever they say, and cuts their connections. What the server has answered to
// earlier statements of the same pipeline is delivered. Zero means no more.
func (p *Proxy) LoseCommitReply(n int) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.loseReplies = n
}

// LoseCommitRequest cuts the connections of the next n COMMITs before the COMMIT
// reaches the server; earlier statements of the same pipeline do. Zero means no more.
func (p *Proxy) LoseCommitRequest(n int) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.loseRequests = n
}

// DelayCommitReply keeps every reply to a COMMIT for a time. Zero means no more.
func (p *Proxy) DelayCommitReply(d time.Duration) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.delay = d
}

// SetRandomFaults replaces the random faults and counts the COMMITs from zero again.
func (p *Proxy) SetRandomFaults(f RandomFaults) {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	p.faults.random, p.faults.commits = f, 0
}

// gate stops the bytes of all connections while it is closed.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // nil while open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

// pass waits until the gate is open; false means that quit was closed first.
func (g *gate) pass(quit <-chan struct{}) bool {
	for {
		g.mu.Lock()
		opened := g.opened
		g.mu.Unlock()
		if opened == nil {
			return true
		}
		select {
		case <-opened:
		case <-quit:
			return false
		}
	}
}

// Freeze stops all bytes in both directions, and the news that a side has closed, as
// a network does that silently drops packets. New connections can be made, but get
// no answer. What was being written at this moment may still arrive.
func (p *Proxy) Freeze() { p.gate.close() }

// Thaw ends Freeze; what was held back is delivered.
func (p *Proxy) Thaw() { p.gate.open() }

// CutAll closes the present connections on both sides, without a word of the
// protocol.
func (p *Proxy) CutAll() {
	for _, c := range p.live() {
		c.cut()
	}
}

// CutAfter does CutAll after a time, and returns at once.
func (p *Proxy) CutAfter(d time.Duration) { time.AfterFunc(d, p.CutAll) }
