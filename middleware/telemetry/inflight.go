package telemetry

import (
	"sync"
	"time"
)

// inFlight has the deliveries in flight, the oldest first.
type inFlight struct {
	mu            sync.Mutex
	oldest, young *delivery
	n             int64
}

func (f *inFlight) add(d *delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d.older = f.young
	if f.young == nil {
		f.oldest = d
	} else {
		f.young.younger = d
	}
	f.young = d
	f.n++
}

func (f *inFlight) remove(d *delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.older == nil {
		f.oldest = d.younger
	} else {
		d.older.younger = d.younger
	}
	if d.younger == nil {
		f.young = d.older
	} else {
		d.younger.older = d.older
	}
	d.older, d.younger = nil, nil
	f.n--
}

// state returns the number of deliveries in flight, and the age of the oldest.
func (f *inFlight) state() (n int64, age time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.oldest != nil {
		age = time.Since(f.oldest.begun)
	}
	return f.n, age
}
