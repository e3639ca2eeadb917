package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var errNotPinned = errors.New("kafka: the offsets to begin at could not be found and committed")

// pin is called by the client, with the start offsets, before it fetches. Where the group has no
// committed offset yet, it commits the offset to begin at before anything is delivered. So a
// partition without one has had no owner, and nothing in it is suspect; and a group that begins at
// the newest messages does not begin again at later ones. That must not fail: after an error the
// client assigns the partitions again.
func (s *session) pin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var unowned []*partition
	for id, offset := range offsets[s.topic] {
		if offset == s.start() {
			unowned = append(unowned, s.owned.some([]int32{id})...)
		}
	}
	if len(unowned) == 0 {
		return offsets, nil
	}
	starts, err := s.commitStarts(ctx, unowned)
	switch {
	case err == nil:
		maps.Copy(offsets[s.topic], starts)
	case s.config().StartAtNewest:
		return nil, err
	default: // it begins at the oldest message in any case
		s.Logger().Debug("Where a new group begins is not committed, so existing messages count as suspects", watermill.LogFields{"error": err.Error()})
	}
	return offsets, nil
}

// commitStarts looks up where partitions begin, commits that, and returns it.
func (s *session) commitStarts(ctx context.Context, unowned []*partition) (map[int32]kgo.Offset, error) {
	list := kadm.NewClient(s.member()).ListStartOffsets
	if s.config().StartAtNewest {
		// Not the high watermark: an open transaction's messages are published later.
		list = kadm.NewClient(s.member()).ListCommittedOffsets
	}
	listed, err := list(ctx, s.topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: where the partitions begin: %w", err)
	}
	starts := make(map[int32]kgo.Offset, len(unowned))
	for _, p := range unowned {
		start, ok := listed.Lookup(s.topic, p.id)
		if !ok { // it is new, and the broker that was asked does not know it yet
			return nil, errNotPinned
		}
		p.beginAt(start.Offset)
		starts[p.id] = kgo.NewOffset().At(start.Offset)
	}
	s.commit()
	for _, p := range unowned {
		if _, due := p.mark(); due {
			return nil, errNotPinned
		}
	}
	for _, p := range unowned {
		p.trust()
	}
	return starts, nil
}

// beginAt sets where a partition without a committed offset starts.
func (p *partition) beginAt(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.offsets.next, p.backlog.offsets.epoch = offset, unknownEpoch
	p.backlog.offsets.settled++ // this must be committed
}

// trust notes that no earlier owner can have begun a message.
func (p *partition) trust() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.suspects.left = 0
}
