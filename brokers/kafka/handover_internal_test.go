package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestWordIsTakenBackByItsOwnerOnly: whoever has the partition now has come further, and in a
// topic that was made again the offset is another message's.
func TestWordIsTakenBackByItsOwnerOnly(t *testing.T) {
	t.Parallel()
	mine, successor := &partition{id: 3}, &partition{id: 3}
	for name, owned := range map[string]map[int32]*partition{"revoked": {}, "assigned again": {3: successor}, "forgotten": {3: mine}} {
		s := &session{life: t.Context(), made: make(chan struct{})}
		close(s.made) // without a client: to commit would panic
		s.owned.partitions, s.owned.forgotten = owned, name == "forgotten"
		if s.commitMarks(map[int32]mark{3: {partition: mine}}) {
			t.Errorf("%s: it was committed", name)
		}
	}
}

// TestWhoBeginsNothingKeepsWhatIsSettledAhead: its last commit replaces the one before.
func TestWhoBeginsNothingKeepsWhatIsSettledAhead(t *testing.T) {
	t.Parallel()
	before := ahead{base: 7}
	before.add(&kgo.Record{Offset: 9})
	p := &partition{idle: make(chan struct{})}
	close(p.idle)
	p.backlog.offsets.next, p.backlog.ahead, p.backlog.handover.from.Offset = unknownOffset, before, 7
	m, due := p.mark()
	if !due || m.at.Offset != 7 || !m.ahead.restUnbegun || !m.ahead.has(&kgo.Record{Offset: 9}) || m.ahead.has(&kgo.Record{Offset: 8}) {
		t.Errorf("%t, %+v", due, m)
	}
}
