package middleware

import (
	"sync/atomic"

	"github.com/millpond-go/millpond/middleware/internal/delivery"
)

// Instances that share a consumer share its effects. If a subscriber gives every message to each
// instance (it has no consumer group, or each has its own), all instances but the first see
// duplicates. That looks healthy, but a handler that was to run in every instance does not. Only
// the subscriber knows. The symptom is many first deliveries of messages that another process has
// completed.
const (
	broadcastDuplicates = 100 // at least
	broadcastShare      = 3   // at least one of this many first deliveries
)

// firsts counts the first deliveries of a consumer in this process.
type firsts struct {
	seen, elsewhere atomic.Int64
	warned          atomic.Bool
}

// note counts a first delivery, and reports once that too many were completed elsewhere.
func (f *firsts) note(elsewhere bool) (warn bool) {
	seen := f.seen.Add(1)
	if !elsewhere {
		return false
	}
	n := f.elsewhere.Add(1)
	return n >= broadcastDuplicates && n*broadcastShare >= seen && !f.warned.Swap(true)
}

func (v *visit) noteFirst(end *delivery.End) {
	if v.retry != nil || v.machine.Suspect() || end.Unsure || end.Cached {
		return
	}
	if v.crowd.firsts.note(end.Result == delivery.Duplicate) {
		v.in.config.Logger.Warn("millpond: many messages of a consumer were completed by other processes before they came here: if every instance has to see each of them, the handler does not belong behind an inbox that they share, see docs/brokers.md, Broadcast",
			anys(v.attrs())...)
	}
}
