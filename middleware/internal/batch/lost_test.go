package batch

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// After a lost batch each runs alone, and the next ones are smaller, until all run alone. Then
// it is tried again.
func TestALostBatchHalvesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.store.commit = errors.Join(stores.ErrNotCommitted, stores.ErrBatchLost)
		for range 8 {
			clear(c.verdicts)
			c.deliver(100, slow)
		}
		if c.store.sizes = c.store.sizes[max(0, len(c.store.sizes)-4):]; slices.Max(c.store.sizes) > 4 {
			t.Errorf("%v", c.store.sizes)
		}
		if size, why := c.collector.Size(); size > 2 || why != "" {
			t.Errorf("size %d, %s", size, why)
		}
		c.store.commit = nil
		size := 0
		for rounds := 0; rounds < 100 && size < 8; rounds++ {
			clear(c.verdicts)
			c.deliver(100, slow)
			size, _ = c.collector.Size()
		}
		if size < 8 {
			t.Errorf("size %d after clean ones", size)
		}
	})
}

// A batch that is lost by who leaves it is not committed, and that is known. What that member has
// met may have been of the others, so that its failure decides nothing either.
func TestWhoLosesTheBatchLeavesNoDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for i := 5; i < 100; i += 10 {
			c.store.keep[name(i)] = stores.ErrBatchLost
		}
		c.deliver(100, func(id string, alone bool) error {
			if id[3] == '5' && !alone {
				return errors.New("its connection is gone")
			}
			return slow(id, alone)
		})
		apart := 0
		for id, v := range c.verdicts {
			if !c.alone[id] && !v.Apart && v.Err != nil {
				t.Errorf("%s: %+v", id, v)
			}
			if v.Apart && id[3] != '5' {
				apart++
				if !errors.Is(v.Err, stores.ErrNotCommitted) {
					t.Errorf("%s: %+v", id, v)
				}
			}
		}
		if apart == 0 {
			t.Error("nobody was in a batch that was lost")
		}
	})
}

func TestAnUnknownCommitIsEachOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.store.commit = fmt.Errorf("it is gone: %w", stores.ErrCommitUnknown)
		c.deliver(60, slow)
		unknown := 0
		for id, v := range c.verdicts {
			if !c.alone[id] {
				unknown++
				if !errors.Is(v.Err, stores.ErrCommitUnknown) || v.Apart {
					t.Errorf("%s: %+v", id, v)
				}
			}
		}
		if unknown < 8 {
			t.Errorf("%d are unknown", unknown)
		}
	})
}

// What a handler has met that failed may have been of others of its batch, who were not committed
// either.
func TestFailuresInALostBatchDecideNothing(t *testing.T) {
	for _, commit := range []error{errors.Join(stores.ErrNotCommitted, stores.ErrBatchLost), stores.ErrCommitUnknown} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t)
			c.store.commit = commit
			for i := range 100 {
				if i%10 == 7 {
					c.store.keep[name(i)] = errors.Join(stores.ErrNotCommitted, stores.ErrFailureHidden)
				}
			}
			c.deliver(100, func(id string, _ bool) error {
				if id[3] == '5' {
					return errors.New("failed")
				}
				return slow(id, false)
			})
			for id, v := range c.verdicts {
				if (id[3] == '5' || id[3] == '7') && !v.Apart && !c.alone[id] && len(c.store.last[id].kept) > 0 {
					t.Errorf("%v: %s: %+v", commit, id, v)
				}
			}
		})
	}
}

// A handler that comes back when its batch was given up may have waited for what others had written.
func TestFailureAfterTheEndOfTheBatchDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		var first atomic.Pointer[string] // that shares
		c.deliver(100, func(id string, alone bool) error {
			if !alone && first.CompareAndSwap(nil, &id) {
				<-time.After(time.Hour)
				return errors.New("failed")
			}
			return slow(id, alone)
		})
		if v := c.verdicts[*first.Load()]; c.alone[*first.Load()] || !v.Apart {
			t.Errorf("alone %t, %+v", c.alone[*first.Load()], v)
		}
	})
}

// The end of a batch asks functions of the program, such as a tracer. If one panics, or exits its
// goroutine, the connection is closed, and each member has one outcome.
func TestPanicAtTheEndOfABatchKeepsNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t)
			c.store.panics = true
			if lost {
				c.store.second = errors.Join(stores.ErrNotCommitted, stores.ErrBatchLost)
			}
			var all sync.WaitGroup
			panicked := 0
			for i := range 100 {
				all.Go(func() {
					defer func() {
						if recover() != nil {
							c.mu.Lock()
							defer c.mu.Unlock()
							panicked++
						}
					}()
					c.one(name(i), slow)
				})
			}
			all.Wait()
			shared := 0
			for id, v := range c.verdicts {
				if c.alone[id] {
					continue
				}
				shared++
				if lost != errors.Is(v.Err, stores.ErrNotCommitted) || lost == errors.Is(v.Err, stores.ErrCommitUnknown) {
					t.Errorf("%s: %+v", id, v)
				}
			}
			if panicked == 0 || shared == 0 || len(c.verdicts)+panicked != 100 || c.store.running != 0 || c.collector.running != 0 {
				t.Errorf("%d panicked, %d shared, %d have a verdict, %d batches and %d places are open", panicked, shared, len(c.verdicts), c.store.running, c.collector.running)
			}
		})
	}
}

// A batch that cannot begin is nobody's failure.
func TestWhereNoBatchBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.store.refuse = stores.ErrUnavailable
		c.deliver(100, slow)
		for id, v := range c.verdicts {
			if v.Err != nil || !c.alone[id] {
				t.Errorf("%s: %+v", id, v)
			}
		}
	})
}

// What the handler does is said without the rest of the error.
func TestWhatCannotBeSharedIsSaidAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for i := range 100 {
			c.store.keep[name(i)] = errors.Join(fmt.Errorf("store: %w", &stores.NotSharedError{What: "SET LOCAL"}), stores.ErrBatchLost)
		}
		c.deliver(100, slow)
		if _, why := c.collector.Size(); why != "SET LOCAL" {
			t.Errorf("%q", why)
		}
	})
}
