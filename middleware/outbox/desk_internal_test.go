package outbox

import (
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// What a pause leaves out is read from where the floor was lowered to meanwhile, also if reads
// of other destinations have raised it again.
func TestWhatPausesIsReadFromTheLowestFloor(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(d *desk, l *lane) (end func()){
		"the destination is away": func(d *desk, l *lane) func() {
			d.went(l, stores.ErrUnavailable, nil)
			l.away.until = time.Now().Add(time.Hour)
			return func() { l.away.until = time.Now().Add(-time.Second) }
		},
		"the destination takes no more": func(_ *desk, l *lane) func() {
			l.inHand = laneItems
			return func() { l.inHand = 0 }
		},
		"nobody knows the destination": func(d *desk, _ *lane) func() {
			d.unknown["other"] = paused{from: d.floor.at + 1, until: time.Now().Add(time.Hour)}
			return func() {
				d.unknown["other"] = paused{from: d.unknown["other"].from, until: time.Now().Add(-time.Second)}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(map[string]message.Publisher{"": nil}, newHolding(nil, time.Minute))
			now := time.Now()
			read := func(through int64) int64 { // long after the one before, so that the floor rises
				now = now.Add(time.Second)
				after := d.floor.begin(now)
				d.saw(through, now)
				return after
			}
			read(100)
			read(100)
			end := pause(d, d.lanes[""])
			d.query(now) // by which a destination that takes no more is left out
			d.change(func() (gained bool) { return true })
			read(100)
			if at := read(math.MaxInt64); at != 100 {
				t.Fatalf("the floor is at %d; want 100, or this proves nothing", at)
			}
			end()
			if q, _ := d.query(now); q.After != 0 {
				t.Errorf("read after %d, though buckets were gained", q.After)
			}
		})
	}
}
