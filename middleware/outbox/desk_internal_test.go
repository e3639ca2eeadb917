package outbox

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// What a pause leaves out is read from where the floor was lowered to meanwhile, also if reads
// of other destinations have raised it again.
func TestWhatPausesIsReadFromTheLowestFloor(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(d *desk, l *lane) (end func()){
		"the destination is away": func(d *desk, l *lane) func() {
			d.went(l, true, stores.ErrUnavailable, nil)
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
			d.query(now, fromFloor) // by which a destination that takes no more is left out
			d.change(func() (gained bool) { return true })
			read(100)
			if at := read(math.MaxInt64); at != 100 {
				t.Fatalf("the floor is at %d; want 100, or this proves nothing", at)
			}
			end()
			if q, _ := d.query(now, fromFloor); q.After != 0 {
				t.Errorf("read after %d, though buckets were gained", q.After)
			}
		})
	}
}

// A lease that ends while a destination is away does not let it be asked as often as at first.
func TestPausesGrowThoughLeasesEnd(t *testing.T) {
	t.Parallel()
	store := &leased{}
	r, err := New(store, Config{Publishers: map[string]message.Publisher{"": away{}}, LeaseTTL: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.leases.renew(t.Context(), r.desk.busy, r.desk.change); err != nil {
		t.Fatal(err)
	}
	l := r.desk.lanes[""]
	wave := func() {
		it := &item{PendingOutput: stores.PendingOutput{Number: 1}, term: r.leases.termOf(0)}
		l.add(it)
		r.settleWave(l, l.take(), r.publish(t.Context(), l.publisher, []*item{it}))
	}
	wave()
	wave()
	was := l.pause
	r.leases.expires = time.Now()
	wave()
	if was <= firstAway || l.pause != was {
		t.Errorf("the destination paused for %s, and pauses for %s when a lease has ended", was, l.pause)
	}
}

// leased gives all leases to whoever asks.
type leased struct{ stores.Outbox }

func (*leased) Lease(_ context.Context, q stores.LeaseRequest) (stores.Leased, error) {
	return stores.Leased{Units: q.Units, Live: 1}, nil
}

func (*leased) Unlease(context.Context, string, string, []int64) error { return nil }

type away struct{ message.Publisher }

func (away) Publish(string, ...*message.Message) error { return brokers.ErrUnavailable }

func fromFloor(floor int64) int64 { return floor }
