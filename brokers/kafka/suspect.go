package kafka

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kadm"
)

// suspects are the messages that an earlier owner of a partition may have begun. It began
// them in the order of the log, never more than its commit distance from the oldest
// unsettled one on. However much it has settled since its last commit, no more than so many
// are unfinished. When so many were found, what follows was never begun.
type suspects struct {
	most  int   // unfinished ones of an earlier owner
	left  int   // of them, not found yet
	until int64 // the end of the log when the partition was assigned
}

func (s *suspects) init(most int) {
	s.most = most
	s.again()
}

// again begins anew, with a log that may have lost its end.
func (s *suspects) again() { s.left, s.until = s.most, math.MaxInt64 }

func (s *suspects) has(it *item) bool { return s.left > 0 && it.record.Offset < s.until }

// ends asks where the partitions end now. What comes later cannot have been delivered to
// an earlier owner. Without an answer nothing is known: the result is nil.
func (s *session) ends(ctx context.Context) kadm.ListedOffsets {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	ends, err := kadm.NewClient(s.member()).ListEndOffsets(ctx, s.topic)
	if err != nil {
		s.Logger().Debug("The ends of the partitions are not known: more messages are suspects than need be", nil)
		return nil
	}
	return ends
}

// suspectBefore notes which messages an earlier owner may have had: those that are there.
func (p *partition) suspectBefore(ends kadm.ListedOffsets) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end, ok := ends.Lookup(p.session.topic, p.id); ok && end.Err == nil {
		p.backlog.suspects.until = end.Offset
	}
}

// unfinished counts a suspect that no earlier delivery has ended.
func (p *partition) unfinished(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !it.found {
		it.found = true
		p.backlog.suspects.left--
	}
}
