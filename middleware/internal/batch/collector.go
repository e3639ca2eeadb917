// Package batch lets concurrent deliveries share transactions. A collector groups the waiting
// deliveries and passes the transaction from one to the next, each on its own goroutine. A
// transaction begins with the deliveries that are waiting; none waits for more.
package batch

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Config says how the deliveries of one consumer share transactions.
type Config struct {
	Size    int           // the most members of a batch
	From    int           // with fewer deliveries in flight, each runs alone
	Places  int           // for batches, each left after Time; a delivery that runs alone may take one
	Time    time.Duration // after this no further member of a batch begins
	Claim   time.Duration // bounds the claim
	Commit  time.Duration // bounds COMMIT
	Handler time.Duration // a member's time; see round.hang
	Ended   func(End)     // called for each batch; may be nil
}

// Collector collects the deliveries of one consumer. It is safe for concurrent use.
type Collector struct {
	store  stores.Batcher
	config Config

	mu       sync.Mutex
	inFlight int
	running  int  // taken places
	filling  bool // a leader has yet to take its group
	waiting  []*Seat
	size     int    // the limit of the next batch; 1: all run alone for now; 0: not known yet
	alone    int    // deliveries that have succeeded alone since size became 1
	apart    string // why the handler runs alone from now on
	tally    Tally
}

// Tally counts what became of the batches so far.
type Tally struct {
	Batches, Lost int
	Left          int   // members that left a batch
	Why           error // the last lost batch's error
}

// Tally returns the consumer's tally.
func (c *Collector) Tally() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally
}

// New returns a collector for a consumer.
func New(store stores.Batcher, c Config) *Collector { return &Collector{store: store, config: c} }

// Size returns how many members the next batch may have; below 2 all run alone. why says what the
// handler did that cannot be shared; "" if it may share.
func (c *Collector) Size() (size int, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size, c.apart
}

// Seat is one delivery's place among the waiting ones. It belongs to the delivery's goroutine, except
// from add until that is told something: then a leader sets round and member.
type Seat struct {
	collector *Collector
	claim     stores.Claim
	place     *place      // set if it runs alone in the place of a batch
	over      bool        // Close was called
	told      chan signal // what it must act on
	round     *round
	member    stores.Member
}

// signal is what a waiting delivery is told.
type signal uint8

const (
	leads signal = iota // begin a batch
	unwon               // the batch has begun without its claim
	runs                // it has the transaction
	alone               // it runs alone
)

// Join takes a seat for a claim that may share a transaction. If alone is true the delivery makes
// its own claim; otherwise call Wait. In both cases call Close.
func (c *Collector) Join(claim *stores.Claim) (s *Seat, alone bool) {
	s = &Seat{collector: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight++
	if c.size == 0 {
		c.size = max(1, c.limit())
	}
	if c.apart != "" || c.size < 2 || c.inFlight < c.config.From && len(c.waiting) == 0 {
		return s, true
	}
	s.claim, s.told = *claim, make(chan signal, 2)
	return s, false
}

// add lets a delivery wait for a batch.
func (c *Collector) add(s *Seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.apart != "" {
		s.told <- alone
		return
	}
	c.waiting = append(c.waiting, s)
	c.next()
}

// next lets the delivery that has waited longest lead a batch if there is a place. Until that one
// has taken its group, no other needs to. c.mu must be held.
func (c *Collector) next() {
	if c.filling || c.running >= c.config.Places || len(c.waiting) == 0 {
		return
	}
	c.running++
	c.filling = true
	leader := c.waiting[0]
	c.waiting = slices.Delete(c.waiting, 0, 1)
	leader.told <- leads
}

// fill returns a leader's group: itself and the deliveries that have waited longest, one per key.
// Deliveries whose goroutines can run now come first, so that they share its commit, too.
func (c *Collector) fill(leader *Seat) []*Seat {
	c.gather()
	c.mu.Lock()
	defer c.mu.Unlock()
	most := max(c.size, 1)
	group := append(make([]*Seat, 0, min(most, 1+len(c.waiting))), leader)
	c.waiting = slices.DeleteFunc(c.waiting, func(s *Seat) bool {
		twin := func(other *Seat) bool { return bytes.Equal(other.claim.Key.ID, s.claim.Key.ID) }
		if len(group) == most || slices.ContainsFunc(group, twin) {
			return false
		}
		group = append(group, s)
		return true
	})
	c.filling = false
	c.next()
	return group
}

// gather lets other goroutines run for as long as that brings more deliveries. Meanwhile filling keeps
// others from leading: their batches would take the deliveries that this one can have.
func (c *Collector) gather() {
	for before := -1; ; {
		runtime.Gosched()
		c.mu.Lock()
		waiting, most := len(c.waiting), c.size
		c.mu.Unlock()
		if waiting <= before || waiting+1 >= most {
			return
		}
		before = waiting
	}
}

// place is a batch's place. It is free again after Config.Time at the latest, so that slow handlers
// do not block the waiting deliveries.
type place struct {
	collector *Collector
	freed     atomic.Bool
}

// newPlace returns the place that next took.
func (c *Collector) newPlace() *place {
	p := &place{collector: c}
	time.AfterFunc(c.config.Time, p.free)
	return p
}

func (p *place) free() {
	if p.freed.Swap(true) {
		return
	}
	c := p.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.next()
}

// Wait waits until the delivery has a batch's transaction, with its claim. It reports false if the
// delivery must run alone; see Unwon. ctx bounds the calls that it makes for the whole batch.
func (s *Seat) Wait(ctx context.Context) bool {
	s.collector.add(s)
	for {
		switch <-s.told {
		case leads:
			group := s.collector.fill(s)
			if len(group) == 1 {
				s.place = s.collector.newPlace()
				return false
			}
			s.collector.lead(ctx, group)
		case runs:
			return true
		case unwon, alone:
			return false
		}
	}
}

// Unwon reports whether the batch did not win the claim. The message is completed, or somebody holds
// its key; which of the two is known after Ended.
func (s *Seat) Unwon() bool { return s.round != nil && s.member == nil }

// Ended waits until the batch has ended.
func (s *Seat) Ended() { <-s.round.done }

// Server returns the batch's server.
func (s *Seat) Server() uint64 { return s.round.batch.Server() }

// Member returns the delivery's part of the batch, or nil.
func (s *Seat) Member() stores.Member { return s.member }

// Close leaves the seat once the delivery's attempt is over. It may be called again.
func (s *Seat) Close(completed bool) {
	if s.over {
		return
	}
	s.over = true
	if s.place != nil {
		s.place.free()
	}
	c := s.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if completed && s.member == nil && c.size == 1 && c.apart == "" {
		if c.alone++; c.alone >= tryAgain {
			c.alone, c.size = 0, max(1, min(2, c.limit()))
		}
	}
	c.next()
}

// tryAgain is how many deliveries must succeed alone before sharing is tried again.
const tryAgain = 256

// learn notes that the handler runs alone from now on, and why.
func (c *Collector) learn(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apart = why
	for _, s := range c.waiting {
		s.told <- alone
	}
	c.waiting = nil
}

// adapt makes the next batches smaller after a batch that was lost or did not reach all its members
// in time, and larger again after a complete one.
func (c *Collector) adapt(e *End) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Batches++
	c.tally.Left += e.Failed + e.Apart
	if e.Lost != nil {
		c.tally.Lost++
		c.tally.Why = e.Lost
	}
	switch {
	case e.Lost != nil || e.Interrupted:
		c.size /= 2
	case e.Late > 0:
		c.size = min(c.size, e.Size-e.Late)
	case e.Size >= c.size:
		c.size++
	}
	c.size = max(1, min(c.size, c.limit()))
}

func (c *Collector) limit() int { return min(c.config.Size, c.store.BatchLimit(c.config.Places)) }
