package kafka

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kadm"
)

// suspects are the messages that a partition's earlier owner may have begun. It began them in log
// order, never further from its oldest unsettled one than its commit distance. So, however much it
// settled after its last commit, at most that many are unfinished. Once that many have been found,
// the following ones never began.
type suspects struct {
	most  int   // how many an earlier owner can have left unfinished
	left  int   // how many of these are not found yet
	until int64 // the end of the log when the partition was assigned
}

func (s *suspects) init(most int) {
	s.most = most
	s.again()
}

// again starts over, after the log may have lost its end.
func (s *suspects) again() { s.left, s.until = s.most, math.MaxInt64 }

func (s *suspects) has(it *item) bool { return s.left > 0 && it.record.Offset < s.until }

// ends returns the partitions' current ends. Later messages cannot have been delivered to an
// earlier owner. It returns nil without an answer.
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

// suspectBefore notes which messages an earlier owner may have had: those that exist now.
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
