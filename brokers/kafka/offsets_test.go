package kafka

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// TestNoHoles settles messages in any order, with gaps in the log, and compares what
// would be committed with a plain model: nothing unsettled may be passed over, and
// nothing settled may come again that the metadata has room for.
func TestNoHoles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := offsets{next: unknownOffset}
		topic := kadm.TopicID{1}
		var all, unsettled []*item
		offset := rapid.Int64Range(0, 1<<40).Draw(t, "first")
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				it := &item{record: &kgo.Record{Offset: offset}}
				offset += rapid.SampledFrom([]int64{1, 1, 1, 2, 30, maxAhead}).Draw(t, "gap")
				o.begin(it)
				all, unsettled = append(all, it), append(unsettled, it)
			},
			"settle": func(t *rapid.T) {
				if len(unsettled) == 0 {
					return
				}
				i := rapid.IntRange(0, len(unsettled)-1).Draw(t, "which")
				o.settle(unsettled[i])
				unsettled = slices.Delete(unsettled, i, i+1)
			},
			"": func(t *rapid.T) {
				if got := o.unsettled(); !slices.Equal(got, unsettled) {
					t.Fatalf("unsettled are %d, not %d", len(got), len(unsettled))
				}
				if o.settled != len(all)-len(unsettled) {
					t.Fatalf("%d are settled, not %d", o.settled, len(all)-len(unsettled))
				}
				if len(all) == 0 {
					return
				}
				metadata := o.ahead()
				text := metadata.encode(topic)
				next, err := decodeAhead(text, topic, o.next)
				if err != nil && text != "" {
					t.Fatalf("%q: %v", text, err)
				}
				for _, it := range all {
					at, comes := it.record.Offset, it.record.Offset >= o.next && !next.has(it.record)
					switch {
					case !it.settled && !comes:
						t.Fatalf("offset %d is unsettled and passed over: next %d, metadata %q", at, o.next, text)
					case it.settled && comes && at < o.next+maxAhead:
						t.Fatalf("offset %d is settled and would come again: next %d, metadata %q", at, o.next, text)
					}
				}
				if len(unsettled) > 0 && o.next > unsettled[0].record.Offset {
					t.Fatalf("next is %d, %d is unsettled", o.next, unsettled[0].record.Offset)
				}
			},
		})
	})
}

// TestForeignMetadata: what others write into a commit, or we for another topic or
// offset, passes nothing over.
func TestForeignMetadata(t *testing.T) {
	t.Parallel()
	topic := kadm.TopicID{1}
	at := func(offset int64) *kgo.Record { return &kgo.Record{Offset: offset, LeaderEpoch: 3} }
	a := ahead{base: 7, epoch: unknownEpoch}
	a.add(at(9))
	own := a.encode(topic)
	got, err := decodeAhead(own, topic, 7)
	if err != nil || !got.has(at(9)) || got.has(at(8)) || got.has(at(10)) || got.has(at(6)) {
		t.Fatalf("%q became %v, %v", own, got, err)
	}
	if got.has(&kgo.Record{Offset: 9, LeaderEpoch: 4}) {
		t.Error("another message that was given the offset later is passed over")
	}
	for _, test := range []struct {
		metadata string
		topic    kadm.TopicID
		offset   int64
	}{
		{"", topic, 7},
		{own, kadm.TopicID{2}, 7},
		{own, kadm.TopicID{}, 7},
		{own, topic, 8},
		{own + "!", topic, 7},
		{own + " more", topic, 7},
		{strings.Replace(own, " 3 ", " three ", 1), topic, 7},
		{"consumer's own words here", topic, 7},
	} {
		if got, err := decodeAhead(test.metadata, test.topic, test.offset); err == nil || got.has(at(9)) {
			t.Errorf("%+v was read as %v", test, got)
		}
	}
	if got := a.encode(kadm.TopicID{}); got != "" {
		t.Errorf("without the topic's id there is metadata %q", got)
	}
}

// TestRestIsCalledUnbegunOnlyIfItIs: the next owner has no suspects then.
func TestRestIsCalledUnbegunOnlyIfItIs(t *testing.T) {
	t.Parallel()
	none := suspects{most: 10}
	for name, c := range map[string]struct {
		suspects suspects
		held     bool
		item     item
		want     bool
	}{
		"nothing was begun":                   {suspects: none, item: item{unbegun: true}, want: true},
		"the rest is settled":                 {suspects: none, item: item{settled: true}, want: true},
		"a message is begun":                  {suspects: none},
		"an earlier owner may have begun it":  {suspects: suspects{left: 1, until: 8}, item: item{unbegun: true}},
		"an earlier owner began none of them": {suspects: suspects{left: 1, until: 7}, item: item{unbegun: true}, want: true},
		"the word before still stands":        {suspects: none, held: true, item: item{unbegun: true}},
	} {
		b := &backlog{suspects: c.suspects, handover: handover{held: c.held}, offsets: offsets{next: 7, started: []*item{&c.item}}}
		if got := b.restUnbegun(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if (&backlog{offsets: offsets{next: unknownOffset}, suspects: none, handover: handover{from: kgo.EpochOffset{Offset: unknownOffset}}}).restUnbegun() {
		t.Error("an offset that is not known is said to be unbegun")
	}
}
