package kafka

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kgo"
)

// owned has a member's partitions.
type owned struct {
	mu         sync.Mutex
	partitions map[int32]*partition
	forgotten  bool // no more offsets may be committed
}

func (o *owned) one(id int32) *partition {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.partitions[id]
}

func (o *owned) some(ids []int32) []*partition {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*partition
	for _, id := range ids {
		if p := o.partitions[id]; p != nil {
			found = append(found, p)
		}
	}
	return found
}

func (o *owned) all() []*partition {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.partitions))
}

// has reports whether the partitions of the marks may still be committed.
func (o *owned) has(marks map[int32]mark) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, m := range marks {
		if o.forgotten || o.partitions[id] != m.partition {
			return false
		}
	}
	return true
}

func (o *owned) remove(partitions []*partition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range partitions {
		if o.partitions[p.id] == p {
			delete(o.partitions, p.id)
		}
	}
}

// assigned is called by the client before it fetches from the partitions.
func (s *session) assigned(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	if len(topics[s.topic]) == 0 {
		return
	}
	// Records polled earlier belong to an earlier assignment. They must not count as the beginning
	// of this one, because the messages in between would be skipped.
	s.intake.interrupt()
	s.owned.mu.Lock()
	defer s.owned.mu.Unlock()
	for _, id := range topics[s.topic] {
		if old := s.owned.partitions[id]; old != nil { // defensive: it was neither revoked nor lost
			old.stopNow()
		}
		s.owned.partitions[id] = newPartition(s, id)
		if s.ctx.Err() != nil || s.owned.forgotten {
			s.owned.partitions[id].stopNow()
		}
	}
	s.Logger().Debug("Partitions were assigned", watermill.LogFields{"partitions": topics[s.topic]})
}

// revoked is called by the client when partitions move, before another member gets them.
func (s *session) revoked(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	moving := s.owned.some(topics[s.topic])
	if len(moving) == 0 {
		return
	}
	started := time.Now()
	left := s.drain(moving, s.config().RebalanceDrain)
	s.commit()
	s.owned.remove(moving)
	s.Logger().Debug("Partitions were revoked", watermill.LogFields{
		"partitions": topics[s.topic], "unsettled": left, "drained": time.Since(started).String(),
	})
}

// lost is called by the client when the group has removed this member. Others may already have the
// partitions.
func (s *session) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	gone := s.owned.some(topics[s.topic])
	s.owned.remove(gone)
	for _, p := range gone {
		p.stopNow()
	}
	if len(gone) > 0 {
		s.Logger().Info("Partitions were lost", watermill.LogFields{"partitions": topics[s.topic]})
	}
}

// drain waits for the handlers of some partitions, and lets no new ones begin. It returns how many
// deliveries are still unsettled after the timeout. Their settlement will be ignored.
func (s *session) drain(partitions []*partition, timeout time.Duration) (left int) {
	for _, p := range partitions {
		p.stop()
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for _, p := range partitions {
		select {
		case <-p.idle:
			continue
		default:
		}
		select {
		case <-p.idle:
		case <-timer.C:
			timer.Reset(0) // for the other partitions
			left += p.unsettled()
			p.giveUp()
			<-p.idle
		}
	}
	return left
}

// forget prevents further commits, and ends what is running.
func (s *session) forget() {
	s.stop()
	s.owned.mu.Lock()
	s.owned.forgotten = true
	s.owned.mu.Unlock()
	for _, p := range s.owned.all() {
		p.stopNow()
	}
}
