package middleware

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Some subscribers do not flag redeliveries. A message that was in flight in a process that died
// then looks like a first delivery in another process. So each process that may have such
// messages in flight keeps a row in the store until it leaves. A process that finds the row of a
// dead one treats all deliveries of the consumer as suspects, for as long as redeliveries may
// come.
const (
	attendEvery  = 5 * time.Second
	attendLapse  = 3 * attendEvery  // a process unseen for this long is dead, or must attend anew
	attendIdle   = 12 * attendEvery // a process leaves after this time without a delivery
	attendWithin = attendEvery      // the timeout of one call of the store
)

// attendance is this process's attendance for one consumer.
type attendance struct {
	store    stores.Attendance // nil: the store keeps none, and any process may have died
	consumer stores.Consumer
	fear     time.Duration // how long a redelivery may take

	asking sync.Mutex // held while the store is called

	mu       sync.Mutex
	process  string    // the id of the attendance; "": not attending
	noted    time.Time // when the row was last written; zero: never
	begun    bool      // a first delivery has come
	inFlight int
	last     time.Time // a delivery came, or ended
	ticking  bool      // goOn will be called
	peers    peers
}

// enter counts a delivery that begins.
func (a *attendance) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight++
	a.last = time.Now()
	if !a.begun && a.store == nil {
		a.peers.fearedUntil = a.last.Add(a.fear)
	}
	a.begun = true
}

func (a *attendance) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight--
	a.last = time.Now()
}

// attends reports whether this process has a row.
func (a *attendance) attends() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.store == nil || !a.noted.IsZero() && time.Since(a.noted) < attendLapse
}

// fears reports whether any message may have been in flight when a process died.
func (a *attendance) fears() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.peers.fearedUntil)
}

// attend makes this process known, unless it is.
func (a *attendance) attend(ctx context.Context) error {
	a.asking.Lock()
	defer a.asking.Unlock()
	if a.attends() {
		return nil
	}
	return a.note(ctx)
}

// note writes the row of this process and reads the others. a.asking must be held.
func (a *attendance) note(ctx context.Context) error {
	a.mu.Lock()
	if a.process == "" {
		a.process = rand.Text() // a new id each time, so that a late answer to an earlier call removes nothing
	}
	process, asked := a.process, time.Now()
	a.mu.Unlock()
	others, err := a.store.Attend(ctx, a.consumer, process)
	if err != nil {
		return err
	}
	a.mu.Lock()
	gone := a.peers.hear(others, asked, a.fear, a.noted.IsZero())
	a.noted = asked
	if !a.ticking {
		a.ticking = true
		time.AfterFunc(attendEvery, a.goOn)
	}
	a.mu.Unlock()
	for _, other := range gone {
		_ = a.store.Leave(ctx, a.consumer, other, attendLapse) // else at a later call
	}
	return nil
}

// goOn runs every attendEvery while this process attends.
func (a *attendance) goOn() {
	ctx, cancel := context.WithTimeout(context.Background(), attendWithin)
	defer cancel()
	a.asking.Lock()
	defer a.asking.Unlock()
	a.mu.Lock()
	idle, attends := a.inFlight == 0 && time.Since(a.last) >= attendIdle, a.process != ""
	a.mu.Unlock()
	var err error
	if idle {
		err = a.depart(ctx)
	} else if attends {
		err = a.note(ctx) // else at a later call: deliveries wait after attendLapse
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ticking = a.process != "" && !errors.Is(err, stores.ErrClosed); a.ticking {
		time.AfterFunc(attendEvery, a.goOn)
	}
}

// depart removes this process's row if nothing is in flight. a.asking must be held.
func (a *attendance) depart(ctx context.Context) error {
	a.mu.Lock()
	process := a.process
	if process == "" || a.inFlight > 0 {
		a.mu.Unlock()
		return nil
	}
	a.process, a.noted = "", time.Time{}
	a.mu.Unlock()
	return a.store.Leave(ctx, a.consumer, process, 0)
}

// end removes this process's row at an orderly shutdown.
func (a *attendance) end(ctx context.Context) error {
	if a.store == nil {
		return nil
	}
	a.asking.Lock()
	defer a.asking.Unlock()
	return a.depart(ctx)
}

// peers are the other processes.
type peers struct {
	doubted     map[string]time.Time // since when each may be dead; zero: it lives
	fearedUntil time.Time
}

// hear takes over the store's rows of the others, and returns those that are no longer needed. A
// process that is there when this one begins may have died a moment ago; it counts as alive only
// once it is seen again.
func (p *peers) hear(others []stores.Attendant, asked time.Time, fear time.Duration, first bool) (gone []string) {
	before, now := p.doubted, time.Now()
	p.doubted, p.fearedUntil = make(map[string]time.Time, len(others)), time.Time{}
	latest, unseen := "", time.Duration(0)
	for _, o := range others {
		since, known := before[o.Process]
		switch dead := o.Unseen >= attendLapse; {
		case !known && (first || dead), known && since.IsZero() && dead:
			since = now
		case known && !since.IsZero() && !dead && o.Unseen < asked.Sub(since):
			since = time.Time{}
		}
		p.doubted[o.Process] = since
		if since.IsZero() {
			continue
		}
		until := since.Add(fear)
		if until.After(p.fearedUntil) {
			p.fearedUntil = until
		}
		if o.Unseen < attendLapse {
			continue
		}
		switch { // of several dead processes only the latest is kept, so that rows do not pile up
		case !until.After(now):
			gone = append(gone, o.Process)
		case latest == "":
			latest, unseen = o.Process, o.Unseen
		case o.Unseen < unseen:
			gone, latest, unseen = append(gone, latest), o.Process, o.Unseen
		default:
			gone = append(gone, o.Process)
		}
	}
	return gone
}
