// Package gate decides which delivery may ask the store now. It knows no store: its callers
// interpret the answers.
//
// A delivery that cannot be decided is held, without a connection. Too many held deliveries of one
// consumer stop that consumer's intake. A store that does not answer stops all intakes: one
// delivery at a time asks for all. Messages that may have ended a process run one at a time.
package gate

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrFull: the consumer's held deliveries were at their maximum all the time.
var ErrFull = errors.New("middleware: Hold.Max deliveries were held all the time")

// Config sets how deliveries wait.
type Config struct {
	Limit              time.Duration // how long one delivery may be held
	MinPause, MaxPause time.Duration // between two claims
	Max                int           // how many held deliveries of a consumer stop its intake

	Paused  func(reason error)        // called when the intake pauses
	Resumed func(after time.Duration) // called when it resumes
}

// Gate is shared by all deliveries of an inbox. It is safe for concurrent use.
type Gate struct {
	config Config
	intake *intake
	ward   *ward
}

// New returns an open gate.
func New(c Config) *Gate {
	return &Gate{config: c, intake: newIntake(c), ward: newWard()}
}

// Reason returns why the intake is paused, or nil.
func (g *Gate) Reason() error { return g.intake.reason() }

// Answered notes that the store answered.
func (g *Gate) Answered() { g.intake.resume() }

// Lane returns a new lane, for one consumer's deliveries. Held deliveries of one lane do not stop
// another.
func (g *Gate) Lane() *Lane { return &Lane{limit: g.config.Max} }

// Lane counts a consumer's held deliveries.
type Lane struct {
	limit int

	mu   sync.Mutex
	held int
	room chan struct{} // closed when there is room; nil without waiters
}

// hold counts a held delivery until release is called.
func (l *Lane) hold() {
	l.mu.Lock()
	l.held++
	l.mu.Unlock()
}

func (l *Lane) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held--
	if l.held < l.limit && l.room != nil {
		close(l.room)
		l.room = nil
	}
}

func (l *Lane) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held < l.limit
}

// wait waits for room. It reports false if ctx ends first.
func (l *Lane) wait(ctx context.Context) bool {
	for {
		l.mu.Lock()
		if l.held < l.limit {
			l.mu.Unlock()
			return true
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}
