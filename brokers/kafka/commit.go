package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Offsets are committed here and not by the client's autocommit of marks, so that a
// message costs no lock of the client, and nothing is committed for a topic that was
// made again.

func (s *session) commitRegularly() {
	ticker := time.NewTicker(s.subscriber.broker.config.Consume.CommitInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			// Not the session's context: a commit under way when the intake stops is as
			// good as any other.
			ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
			s.commit(ctx)
			cancel()
		case <-s.ctx.Done():
			return
		}
	}
}

// commit commits, for each partition, the end of what is settled without a gap. What
// fails is tried again by the next commit, or comes again.
func (s *session) commit(ctx context.Context) {
	s.committing.Lock() // also while it is under way: no older offset may come last
	defer s.committing.Unlock()
	s.mu.Lock()
	offsets := make(map[int32]kgo.EpochOffset)
	moved := make(map[int32]*partition)
	for id, p := range s.partitions {
		if at, ok := p.uncommitted(); ok && !s.forgotten {
			offsets[id], moved[id] = at, p
		}
	}
	s.mu.Unlock()
	if len(offsets) == 0 {
		return
	}
	s.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				s.notCommitted(err)
				return
			}
			for _, topic := range response.Topics {
				for _, answer := range topic.Partitions {
					if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
						s.notCommitted(fmt.Errorf("partition %d: %w", answer.Partition, err))
						continue
					}
					if p := moved[answer.Partition]; p != nil {
						p.commitDone(offsets[answer.Partition].Offset)
					}
				}
			}
		})
}

func (s *session) notCommitted(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	s.logger.Info("Offsets were not committed; what they stand for may come again", watermill.LogFields{"error": err.Error()})
}

// uncommitted returns the offset to commit, if there is a new one.
func (p *partition) uncommitted() (kgo.EpochOffset, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := kgo.EpochOffset{Epoch: p.offsets.epoch, Offset: p.offsets.next}
	return at, at.Offset != unknownOffset && at.Offset != p.committed
}

func (p *partition) commitDone(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed = offset
}
