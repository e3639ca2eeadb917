package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// fakeStore has batches without a database: it notes what is done, and that nobody else has
// the transaction meanwhile.
type fakeStore struct {
	mu      sync.Mutex
	limit   int
	refuse  error            // of BeginBatch
	commit  error            // of Commit
	panics  bool             // of Commit and Rollback
	takes   [3]time.Duration // BeginBatch, Keep and Leave, and the end
	taken   map[string]bool  // keys that are not won
	keep    map[string]error // of Member.Keep
	second  error            // of Member.Keep of a batch's second member
	sizes   []int            // of batches
	done    map[string]bool  // committed
	last    map[string]*fakeBatch
	running int // batches
	most    int
}

func newFakeStore() *fakeStore {
	return &fakeStore{limit: 100, taken: map[string]bool{}, keep: map[string]error{}, done: map[string]bool{}, last: map[string]*fakeBatch{}}
}

func (f *fakeStore) BatchLimit(int) int { return f.limit }

func (f *fakeStore) BeginBatch(_ context.Context, claims []stores.Claim) (stores.Batch, error) {
	<-time.After(max(f.takes[0], time.Millisecond))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	f.sizes = append(f.sizes, len(claims))
	f.running++
	f.most = max(f.most, f.running)
	b := &fakeBatch{store: f}
	for _, c := range claims {
		if f.taken[string(c.Key.ID)] {
			b.members = append(b.members, nil)
		} else {
			b.members = append(b.members, &fakeMember{batch: b, id: string(c.Key.ID)})
			f.last[string(c.Key.ID)] = b
		}
	}
	return b, nil
}

type fakeBatch struct {
	store   *fakeStore
	members []stores.Member
	kept    []string
	over    bool
}

func (b *fakeBatch) Members() []stores.Member { return b.members }
func (b *fakeBatch) Server() uint64           { return 7 }

func (b *fakeBatch) Commit(context.Context) error {
	<-time.After(max(b.store.takes[2], time.Millisecond))
	b.answer()
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.end()
	if b.store.commit != nil {
		return b.store.commit
	}
	for _, id := range b.kept {
		b.store.done[id] = true
	}
	return nil
}

func (b *fakeBatch) end() {
	if !b.over {
		b.over = true
		b.store.running--
	}
}

func (b *fakeBatch) answer() {
	if b.store.panics {
		panic("a tracer")
	}
}

func (b *fakeBatch) Rollback(context.Context) error {
	<-time.After(b.store.takes[2])
	b.answer()
	b.Cut()
	return nil
}

func (b *fakeBatch) Cut() {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.end()
}

type fakeMember struct {
	stores.Emitter

	batch *fakeBatch
	id    string
}

func (m *fakeMember) Context(parent context.Context) context.Context { return parent }

func (m *fakeMember) Keep(context.Context) error {
	<-time.After(m.batch.store.takes[1])
	if err := m.batch.store.keep[m.id]; err != nil {
		return err
	}
	if m.batch.store.second != nil && len(m.batch.kept) == 1 {
		return m.batch.store.second
	}
	m.batch.kept = append(m.batch.kept, m.id)
	return nil
}

func (m *fakeMember) Leave(context.Context) error {
	<-time.After(m.batch.store.takes[1])
	return m.batch.store.keep[m.id]
}

// crowd lets deliveries go through a collector at the same time.
type crowd struct {
	t         *testing.T
	store     *fakeStore
	collector *Collector
	ends      []End

	mu       sync.Mutex
	verdicts map[string]Verdict
	alone    map[string]bool
}

func newCrowd(t *testing.T, change ...func(*Config)) *crowd {
	t.Helper()
	c := &crowd{t: t, store: newFakeStore(), verdicts: map[string]Verdict{}, alone: map[string]bool{}}
	config := Config{
		Size: 32, From: few + 1, Places: places, Time: time.Second, Claim: time.Minute, Commit: time.Minute, Handler: time.Minute,
		Ended: func(e End) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ends = append(c.ends, e)
		},
	}
	for _, f := range change {
		f(&config)
	}
	c.collector = New(c.store, config)
	return c
}

const (
	few    = 8
	places = 4
)

func name(i int) string { return fmt.Sprintf("m%03d", i) }

// deliver lets n deliveries run handle; alone is where it has a transaction of its own.
func (c *crowd) deliver(n int, handle func(id string, alone bool) error) {
	c.t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { c.one(name(i), handle) })
	}
	all.Wait()
	for id, v := range c.verdicts {
		switch {
		case v.Apart || c.alone[id]:
		case v.Err == nil && !c.store.done[id]:
			c.t.Errorf("%s was told that it is committed, and is not", id)
		case v.Err != nil && c.store.done[id]:
			c.t.Errorf("%s was told %v, and is committed", id, v.Err)
		}
	}
	if len(c.verdicts) != n || c.store.running != 0 || c.collector.running != 0 || c.collector.inFlight != 0 || len(c.collector.waiting) != 0 {
		c.t.Errorf("%d verdicts, %d batches run, %d places are taken, %d in flight, %d wait",
			len(c.verdicts), c.store.running, c.collector.running, c.collector.inFlight, len(c.collector.waiting))
	}
}

func (c *crowd) one(id string, handle func(id string, alone bool) error) {
	claim := stores.Claim{Key: stores.Key{ID: []byte(id)}}
	seat, alone := c.collector.Join(&claim)
	var v Verdict
	if alone || !seat.Wait(context.Background()) {
		if seat.Unwon() {
			seat.Ended()
		}
		v.Err = handle(id, true)
		alone = true
	} else if err := handle(id, false); err != nil {
		v = seat.Leave(context.Background())
		v.Err = errors.Join(v.Err, err)
	} else {
		v = seat.Keep(context.Background(), nil)
	}
	seat.Close(v.Err == nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdicts[id], c.alone[id] = v, alone
}

func slow(string, bool) error {
	<-time.After(time.Millisecond)
	return nil
}

func TestThoseThatWaitShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.deliver(200, slow)
		if c.store.most > places || len(c.store.sizes) > 200/8 || slices.Max(c.store.sizes) > 32 {
			t.Errorf("%d at once, of %v", c.store.most, c.store.sizes)
		}
	})
}

// One that is in flight alone waits for nobody, and neither do few.
func TestFewRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		start := time.Now()
		c.deliver(few, slow)
		if len(c.store.sizes) != 0 || time.Since(start) != time.Millisecond {
			t.Errorf("%v in %s", c.store.sizes, time.Since(start))
		}
	})
}

func TestMembersThatLeaveAreToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		errFailed := errors.New("failed")
		c.deliver(100, func(id string, _ bool) error {
			if id[3] == '5' {
				return errFailed
			}
			return slow(id, false)
		})
		for id, v := range c.verdicts {
			if (id[3] == '5') != errors.Is(v.Err, errFailed) || v.Apart {
				t.Errorf("%s: %+v", id, v)
			}
		}
	})
}

// The claims that are not won are asked for again when the batch has ended, and not before.
func TestWhoHasNotWonWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for i := range 100 {
			c.store.taken[name(i)] = i%3 == 0
		}
		c.deliver(100, func(id string, alone bool) error {
			if c.store.taken[id] && !alone {
				t.Errorf("%s has run", id)
			}
			return slow(id, alone)
		})
	})
}

func TestOneOfAKeyInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		claim := func(id string) *Seat {
			return &Seat{claim: stores.Claim{Key: stores.Key{ID: []byte(id)}}, told: make(chan signal, 1)}
		}
		c.collector.size, c.collector.running = 32, places
		c.collector.waiting = []*Seat{claim("b"), claim("a"), claim("c")}
		if group := c.collector.fill(claim("a")); len(group) != 3 || len(c.collector.waiting) != 1 {
			t.Errorf("%d are taken, %d wait", len(group), len(c.collector.waiting))
		}
	})
}

// A batch begins with all that wait when its leader runs, not only with those that waited when it
// was chosen.
func TestALeaderTakesThoseThatCameSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t).collector
		c.size = 2
		seats := make([]*Seat, 4)
		for i := range seats {
			seats[i] = &Seat{claim: stores.Claim{Key: stores.Key{ID: []byte(name(i))}}, told: make(chan signal, 1)}
			c.add(seats[i])
		}
		if c.running != 1 || len(seats[0].told) != 1 {
			t.Errorf("%d lead while the first one has yet to take its group", c.running)
		}
		if group := c.fill(seats[0]); !slices.Equal(group, seats[:2]) {
			t.Errorf("it took %v", group)
		}
		if group := c.fill(seats[2]); !slices.Equal(group, seats[2:]) || c.filling || c.running != 2 {
			t.Errorf("the next one took %v", group)
		}
	})
}

func TestAHandlerThatCannotShareRunsAloneFromThenOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for i := range 100 {
			c.store.keep[name(i)] = fmt.Errorf("store: %w", &stores.NotSharedError{What: "SET LOCAL"})
		}
		c.deliver(100, slow)
		if _, why := c.collector.Size(); why != "SET LOCAL" {
			t.Errorf("%q", why)
		}
		clear(c.verdicts)
		c.store.sizes = nil
		c.deliver(100, slow)
		if len(c.store.sizes) != 0 {
			t.Error("it shares again")
		}
	})
}

// A hook may exit the goroutine of a delivery before it waits.
func TestWhoDoesNotWaitKeepsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for i := range 50 {
			claim := stores.Claim{Key: stores.Key{ID: []byte(fmt.Sprint("gone", i))}}
			seat, _ := c.collector.Join(&claim)
			defer seat.Close(false)
			if i%2 == 0 {
				seat.Close(false)
			}
		}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { c.one(name(i), slow) })
		}
		all.Wait()
		for id, v := range c.verdicts {
			if v.Err != nil {
				t.Errorf("%s: %+v", id, v)
			}
		}
	})
}

// Slow handlers do not add up, and the batches that follow have as many as there is time for.
func TestNobodyBeginsWhenTheTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.deliver(100, func(string, bool) error {
			<-time.After(300 * time.Millisecond)
			return nil
		})
		if size, _ := c.collector.Size(); size > 4+1 { // after a complete batch one more is tried
			t.Errorf("size %d", size)
		}
		for _, e := range c.ends {
			if e.Kept > 4 || e.Took > 2*time.Second {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestAHandlerThatHangsIsWaitedForNoLongerThanAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		start := time.Now()
		var last time.Duration
		var mu sync.Mutex
		c.deliver(100, func(id string, alone bool) error {
			if id == "m050" {
				<-time.After(time.Hour)
				return nil
			}
			_ = slow(id, alone)
			mu.Lock()
			defer mu.Unlock()
			last = max(last, time.Since(start))
			return nil
		})
		if last > 3*time.Minute {
			t.Errorf("others have waited for %s", last)
		}
		if v := c.verdicts["m050"]; !v.Apart && !c.alone["m050"] {
			t.Errorf("%+v", v)
		}
	})
}
