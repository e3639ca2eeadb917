package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var errNotPinned = errors.New("kafka: the offsets to begin at could not be found and committed")

// pinNewest is called by the client, with the start offsets, before it fetches. For new partitions
// it looks up the current end and commits it before anything is delivered. Otherwise a group that
// begins again would begin at a later end. After an error the client assigns the partitions again.
func (s *session) pinNewest(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var unknown []*partition
	for id, offset := range offsets[s.topic] {
		if offset == kgo.NewOffset().AtEnd() {
			unknown = append(unknown, s.owned.some([]int32{id})...)
		}
	}
	if len(unknown) == 0 {
		return offsets, nil
	}
	// Not the high watermark: an open transaction's messages are published later.
	ends, err := kadm.NewClient(s.member()).ListCommittedOffsets(ctx, s.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: where the partitions end: %w", err)
	}
	for _, p := range unknown {
		end, ok := ends.Lookup(s.topic, p.id)
		if !ok { // it is new, and the broker that was asked does not know it yet
			return nil, errNotPinned
		}
		p.beginAt(end.Offset)
		offsets[s.topic][p.id] = kgo.NewOffset().At(end.Offset)
	}
	s.commit()
	for _, p := range unknown {
		if _, due := p.mark(); due {
			return nil, errNotPinned
		}
	}
	return offsets, nil
}

// beginAt sets where a partition without a committed offset starts.
func (p *partition) beginAt(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.offsets.next, p.backlog.offsets.epoch = offset, unknownEpoch
	p.backlog.offsets.settled++ // this must be committed
}
