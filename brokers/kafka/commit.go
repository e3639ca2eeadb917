package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Offsets are committed here, not by the client's autocommit of marks. So a message needs no lock
// of the client, and nothing is committed for a topic that was created again.

// commits is the state of a session's commits.
type commits struct {
	mu    sync.Mutex // held during a commit, so that an older offset does not come last
	plain bool       // the broker accepts no metadata
}

func (s *session) commitRegularly() {
	ticker := time.NewTicker(s.config().CommitInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.commit()
		case <-s.ctx.Done():
			return
		}
	}
}

// commit commits, for each partition, the offset up to which all messages are settled, and in the
// metadata those settled after it. A failed commit is repeated by the next one; without one, the
// messages are redelivered. It still works when the intake stops, and ends with the client.
func (s *session) commit() {
	ctx, cancel := context.WithTimeout(s.life, leaveTimeout)
	defer cancel()
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	if due := s.uncommitted(); len(due) > 0 {
		s.send(ctx, due)
	}
}

// commitMarks reports whether all marks were committed. Partitions that have moved are left out:
// their new owner may be further.
func (s *session) commitMarks(due map[int32]mark) bool {
	ctx, cancel := context.WithTimeout(s.life, leaveTimeout)
	defer cancel()
	s.commits.mu.Lock()
	defer s.commits.mu.Unlock()
	return s.owned.has(due) && s.send(ctx, due)
}

// send reports whether everything was committed. s.commits.mu must be held.
func (s *session) send(ctx context.Context, due map[int32]mark) bool {
	done := 0
	offsets := make(map[int32]kgo.EpochOffset, len(due))
	for id, m := range due {
		offsets[id] = m.at
	}
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for i := range request.Topics {
			for j := range request.Topics[i].Partitions {
				p := &request.Topics[i].Partitions[j]
				if metadata := due[p.Partition].ahead.encode(s.id); metadata != "" && !s.commits.plain {
					p.Metadata = &metadata
				}
			}
		}
		return nil
	})
	s.member().CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				s.notCommitted(err)
				return
			}
			for _, topic := range response.Topics {
				for _, answer := range topic.Partitions {
					m, asked := due[answer.Partition]
					switch err := kerr.ErrorForCode(answer.ErrorCode); {
					case err != nil:
						s.commits.plain = s.commits.plain || errors.Is(err, kerr.OffsetMetadataTooLarge)
						s.notCommitted(fmt.Errorf("partition %d: %w", answer.Partition, err))
					case asked:
						m.partition.commitDone(m)
						done++
					}
				}
			}
		})
	return done == len(due)
}

// mark is the progress of a partition.
type mark struct {
	partition *partition
	at        kgo.EpochOffset
	ahead     ahead
	settled   int
}

// uncommitted returns the progress of the partitions in which messages were settled since their
// last commit.
func (s *session) uncommitted() map[int32]mark {
	s.owned.mu.Lock()
	defer s.owned.mu.Unlock()
	if s.owned.forgotten {
		return nil
	}
	due := make(map[int32]mark)
	for id, p := range s.owned.partitions {
		if m, ok := p.mark(); ok {
			due[id] = m
		}
	}
	return due
}

func (s *session) notCommitted(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	s.Logger().Info("Offsets were not committed; their messages may be redelivered", watermill.LogFields{"error": err.Error()})
}

func (p *partition) mark() (mark, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &p.backlog
	ended := p.ended() && b.restUnbegun()
	if b.offsets.settled == b.offsets.committed && (!ended || b.handover.given) {
		return mark{}, false
	}
	m := mark{partition: p, at: b.position(), ahead: b.offsets.ahead(), settled: b.offsets.settled}
	if b.offsets.next == unknownOffset { // no message has begun here
		m.ahead = b.ahead
	}
	m.ahead.base, m.ahead.restUnbegun = m.at.Offset, ended
	return m, true
}

func (p *partition) commitDone(m mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.offsets.committed = m.settled
	p.backlog.handover.given = m.ahead.restUnbegun
}
