package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// An owner that gives up a partition in order notes this in the metadata of its last commit:
// messages that are not settled there never began, so the next owner has no suspects. The next
// owner withdraws the note before it delivers anything, because it may not end in order.
type handover struct {
	from  kgo.EpochOffset // where this owner began; unknownOffset: no committed offset
	held  bool            // nothing is delivered until the previous owner's note is withdrawn
	given bool            // whether the last commit has the note
}

// takeOver begins at the group's offset.
func (p *partition) takeOver(from kgo.EpochOffset, a ahead) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &p.backlog
	b.handover.from, b.ahead = from, a
	if !a.restUnbegun {
		return
	}
	b.handover.held = true
	a.restUnbegun = false
	p.session.background.Go(func() {
		taken := p.session.commitMarks(map[int32]mark{p.id: {partition: p, at: from, ahead: a}})
		p.mu.Lock()
		defer p.mu.Unlock()
		b.handover.held = false
		if taken {
			b.suspects.left = 0
		}
		p.changed.Broadcast()
	})
}

// position returns where the next owner begins.
func (b *backlog) position() kgo.EpochOffset {
	if b.offsets.next == unknownOffset {
		return b.handover.from
	}
	return kgo.EpochOffset{Epoch: b.offsets.epoch, Offset: b.offsets.next}
}

// restUnbegun reports whether no owner has begun the unsettled messages. Call it when the partition
// is stopped and idle.
func (b *backlog) restUnbegun() bool {
	at := b.position().Offset
	if at == unknownOffset || b.handover.held || b.suspects.left > 0 && at < b.suspects.until {
		return false
	}
	for _, it := range b.offsets.unsettled() {
		if !it.unbegun {
			return false
		}
	}
	return true
}
