package middleware

import (
	"sync/atomic"

	"github.com/millpond-go/millpond/middleware/internal/delivery"
)

// Instances that share a consumer share its effects. A subscriber that gives every
// message to each instance, because that has no consumer group or one of its own, makes
// all of them but the first a duplicate: that looks healthy, and some handler that was to
// run everywhere does not. Nobody but the subscriber knows; what shows is many messages
// that come here first and were completed elsewhere before.
const (
	broadcastDuplicates = 100 // at least
	broadcastShare      = 3   // at least one of so many first deliveries
)

// firsts counts the first deliveries of a consumer in this process.
type firsts struct {
	seen, elsewhere atomic.Int64
	warned          atomic.Bool
}

// note counts one, and reports once that too many were completed elsewhere before.
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
