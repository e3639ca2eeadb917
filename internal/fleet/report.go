package fleet

import (
	"maps"
	"slices"
	"time"
)

// Report counts what the parent did. At the end of a complete run
// Deliveries = Published + Duplicates + Redeliveries + Nacks - Dropped, and
// Acks = Published + Duplicates - Dropped.
type Report struct {
	Published    int // messages taken from the source
	Duplicates   int // deliveries made on purpose of messages that ran or were settled
	Deliveries   int // all deliveries
	Acks         int
	Dropped      int          // messages and duplicates given up at DeliveryLimit
	Nacks        int          // each was delivered again, or dropped
	Redeliveries int          // deliveries because a worker died, or kept one for longer than Visibility
	Kills        map[Kind]int // faults inflicted
	Exits        int          // processes that ended by themselves in the middle of the run
	Restarts     []int        // by worker
	Unsettled    int          // messages and duplicates that were still to be acked
	Duration     time.Duration
}

func (r Report) clone() Report {
	r.Kills = maps.Clone(r.Kills)
	r.Restarts = slices.Clone(r.Restarts)
	return r
}

// EventKind names what happened.
type EventKind string

const (
	EventStarted   EventKind = "started"   // a process was started
	EventReady     EventKind = "ready"     // a process has subscribed
	EventDelivered EventKind = "delivered" // Message was sent to a worker
	EventAcked     EventKind = "acked"
	EventNacked    EventKind = "nacked"
	EventDropped   EventKind = "dropped"   // Message was delivered Config.DeliveryLimit times and is given up; Worker is -1
	EventAnnounced EventKind = "announced" // a process reached Point
	EventKilled    EventKind = "killed"    // a fault of kind Fault was inflicted
	EventExited    EventKind = "exited"    // a process ended, with Err
)

// Event is one thing that the parent did or learned. Fields that do not belong to
// its kind are zero.
type Event struct {
	Kind    EventKind
	Worker  int
	PID     int
	Message Message
	Count   int // which delivery of the message
	Failed  bool
	Fault   Kind
	Point   string
	Err     error
}
