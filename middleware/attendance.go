package middleware

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// A subscriber that does not tell redeliveries apart brings what was in flight in a process
// that died as if for the first time, in another process, and after some time. So each
// process that may have such messages in flight has a row in the store until it leaves. Who
// finds the row of one that died takes all deliveries of the consumer for suspects, for as
// long as redeliveries may come.
const (
	attendEvery  = 5 * time.Second
	attendLapse  = 3 * attendEvery  // who was unseen for so long is dead, or has to attend anew
	attendIdle   = 12 * attendEvery // without a delivery a process leaves
	attendWithin = attendEvery      // the time for one call of the store
)

// attendance is that of this process for one consumer.
type attendance struct {
	store    stores.Attendance // nil: it keeps none, and anybody may have died
	consumer stores.Consumer
	fear     time.Duration // how long a redelivery may take

	asking sync.Mutex // held while the store is asked

	mu       sync.Mutex
	process  string    // what it attends as; "": not at all
	noted    time.Time // when that was said last; zero: never
	begun    bool      // a first delivery has come
	inFlight int
	last     time.Time // a delivery came, or ended
	ticking  bool      // goOn will be called
	peers    peers
}

// enter counts a delivery in.
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

// attends reports whether others know of this process.
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

// note says that this process attends, and hears of the others. a.asking must be held.
func (a *attendance) note(ctx context.Context) error {
	a.mu.Lock()
	if a.process == "" {
		a.process = rand.Text() // another one each time: a late answer to an earlier call removes nothing
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
		_ = a.store.Leave(ctx, a.consumer, other, attendLapse) // or later
	}
	return nil
}

// goOn is called every attendEvery while this process attends.
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
		err = a.note(ctx) // or later: deliveries wait after attendLapse
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ticking = a.process != "" && !errors.Is(err, stores.ErrClosed); a.ticking {
		time.AfterFunc(attendEvery, a.goOn)
	}
}

// depart removes this process if nothing is in flight. a.asking must be held.
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

// end removes this process when it ends in order.
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
	doubted     map[string]time.Time // since when they may be dead; zero: they live
	fearedUntil time.Time
}

// hear takes over what the store says of the others, and returns those whose rows have
// served. Who is there when this process begins may have died a moment ago, and lives only
// when it was seen since.
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
		switch { // of several that died the latest is enough, so that rows do not pile up
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
