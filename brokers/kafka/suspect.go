package kafka

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kadm"
)

// suspects are the messages that an earlier owner of a partition may have begun. It began them in
// log order, never more than its commit distance from the oldest unsettled one on. So, however
// much it settled after its last commit, at most that many are unfinished. Once that many were
// found, the following ones never began.
type suspects struct {
	most  int   // the most unfinished ones of an earlier owner
	left  int   // those not found yet
	until int64 // the end of the log when the partition was assigned
}

func (s *suspects) init(most int) {
	s.most = most
	s.again()
}

// again begins anew, after the log may have lost its end.
func (s *suspects) again() { s.left, s.until = s.most, math.MaxInt64 }

func (s *suspects) has(it *item) bool { return s.left > 0 && it.record.Offset < s.until }

// ends returns the current ends of the partitions. Later messages cannot have been delivered to
// an earlier owner. Without an answer the result is nil.
func (s *session) ends(ctx context.Context) kadm.ListedOffsets {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	ends, err := kadm.NewClient(s.member()).ListEndOffsets(ctx, s.topic)
	if err != nil {
		s.Logger().Debug("The ends of the partitions are unknown, so more messages count as suspects", nil)
		return nil
	}
	return ends
}

// suspectBefore notes the messages that an earlier owner may have had: those that exist now.
func (p *partition) suspectBefore(ends kadm.ListedOffsets) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end, ok := ends.Lookup(p.session.topic, p.id); ok && end.Err == nil {
		p.backlog.suspects.until = end.Offset
	}
}

// unfinished counts a suspect that no earlier delivery finished.
func (p *partition) unfinished(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !it.found {
		it.found = true
		p.backlog.suspects.left--
	}
}
