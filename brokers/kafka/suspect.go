package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

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
		p.backlog.suspects = end.Offset
	}
}

// suspectFrom bounds how many: an earlier owner can have started no more than the commit
// distance from its last commit on, not counting what it has settled since. p.mu must be
// held.
func (p *partition) suspectFrom(first int64) {
	p.backlog.suspects = min(p.backlog.suspects, first+int64(max(p.session.config().CommitDistance, p.workers)))
}
