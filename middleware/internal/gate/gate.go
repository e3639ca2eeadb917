// Package gate decides which delivery may ask the store now. It knows no store: its callers
// say what the answers mean.
//
// A delivery that cannot be decided is held, without a connection. Too many of one consumer
// stop its intake, and a store that cannot be asked stops that of all: one delivery at a
// time asks for everybody. Messages that may have ended a process run one at a time.
package gate

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrFull: too many deliveries of the consumer were held all the time.
var ErrFull = errors.New("middleware: Hold.Max deliveries were held all the time")

// Config says how deliveries wait.
type Config struct {
	Limit              time.Duration // of one delivery
	MinPause, MaxPause time.Duration // between its questions
	Max                int           // held deliveries of a consumer that stop its intake

	Paused  func(reason error)        // is called when the intake pauses
	Resumed func(after time.Duration) // is called when it resumes
}

// Gate is what all deliveries of an inbox share. It is safe for concurrent use.
type Gate struct {
	config Config
	intake *intake
	ward   *ward
}

// New returns a gate that is open.
func New(c Config) *Gate {
	return &Gate{config: c, intake: newIntake(c), ward: newWard()}
}

// Reason returns why the intake is paused, nil if it is not.
func (g *Gate) Reason() error { return g.intake.reason() }

// Answered notes that the store has answered somebody.
func (g *Gate) Answered() { g.intake.resume() }

// Lane returns a new lane, for the deliveries of one consumer: one whose messages have to
// wait does not stop another.
func (g *Gate) Lane() *Lane { return &Lane{limit: g.config.Max} }

// Lane counts the held deliveries of a consumer.
type Lane struct {
	limit int

	mu   sync.Mutex
	held int
	room chan struct{} // closed when there is room; nil while nobody waits
}

// hold counts one delivery as held until release is called.
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

// wait waits for room. It reports false if ctx ended before.
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
