package execute

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/batch"
	"github.com/millpond-go/millpond/stores"
)

// sharing is a store whose batches are always committed. Keys from 100 on are completed.
type sharing struct {
	stores.Failures

	looks, begins *atomic.Int32
}

func (s sharing) Look(_ context.Context, k stores.Key, _ stores.Fingerprint) (v stores.Verdict, err error) {
	s.looks.Add(1)
	if v.Outcome = stores.Claimable; k.ID[0] >= 100 {
		v.Outcome = stores.Duplicate
	}
	return v, nil
}

func (sharing) BatchLimit(int) int { return 32 }

func (sharing) BeginBatch(_ context.Context, claims []stores.Claim) (stores.Batch, error) {
	b := &shared{}
	for i := range claims {
		if claims[i].Key.ID[0] >= 50 {
			b.members = append(b.members, nil)
		} else {
			b.members = append(b.members, &member{})
		}
	}
	return b, nil
}

// Begin is for those that run alone, some time later.
func (s sharing) Begin(context.Context, stores.Claim) (stores.Attempt, stores.Verdict, error) {
	s.begins.Add(1)
	<-time.After(time.Millisecond)
	return alone{}, stores.Verdict{Outcome: stores.Claimed}, nil
}

type alone struct{ stores.Attempt }

func (alone) Commit(context.Context) error   { return nil }
func (alone) Rollback(context.Context) error { return nil }

type shared struct {
	stores.Batch

	members []stores.Member
}

func (b *shared) Members() []stores.Member     { return b.members }
func (*shared) Server() uint64                 { return 1 }
func (*shared) Commit(context.Context) error   { return nil }
func (*shared) Rollback(context.Context) error { return nil }

type member struct {
	stores.Member

	ends int
}

func (m *member) Keep(context.Context) error { m.ends++; return nil }

func (m *member) Leave(context.Context) error { m.ends++; return nil }

// exits is a hook that exits the goroutine when it is told of a commit.
type exits struct{ unobserved }

func (exits) CommitEnds(context.Context, error) { runtime.Goexit() }

// Nobody ends a run again when a hook has ended the goroutine: the connection may be another's.
func TestARunInABatchEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := sharing{looks: &atomic.Int32{}, begins: &atomic.Int32{}}
		collector := batch.New(store, batch.Config{Size: 2, From: 1, Places: 4, Time: time.Minute, Claim: time.Minute, Commit: time.Minute, Handler: time.Minute})
		mode := InBatches(InTransactions(store, Bounds{Claim: time.Minute, Commit: time.Minute}), store, collector)
		var (
			all    sync.WaitGroup
			shared atomic.Int32
		)
		for i := range 40 {
			x, _ := mode.New().(*inBatch)
			all.Go(func() {
				defer x.Close()
				defer func() {
					if x.Open() {
						t.Errorf("run %d is still open", i)
						x.Undo(nil)
					}
					if m, ok := x.last.(*member); ok {
						shared.Add(1)
						if m.ends != 1 {
							t.Errorf("run %d was ended %d times", i, m.ends)
						}
					}
				}()
				x.Start(t.Context(), exits{})
				if v, err := x.Claim(stores.Claim{Key: stores.Key{ID: []byte{byte(i)}}}); err != nil || v.Outcome != stores.Claimed {
					t.Errorf("run %d: %s, %v", i, v.Outcome, err)
				}
				x.Finish(nil)
			})
		}
		all.Wait()
		if shared.Load() == 0 {
			t.Error("none has shared a transaction")
		}
	})
}

// Duplicates in a batch cost one look each, and wait for no handler of it. What else was not won is
// asked for when the batch has ended.
func TestDuplicatesInABatchCostALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := sharing{looks: &atomic.Int32{}, begins: &atomic.Int32{}}
		collector := batch.New(store, batch.Config{Size: 32, From: 1, Places: 1, Time: time.Minute, Claim: time.Minute, Commit: time.Minute, Handler: time.Minute})
		mode := InBatches(InTransactions(store, Bounds{Claim: time.Minute, Commit: time.Minute}), store, collector)
		deliver := func(id byte, handle func(v stores.Verdict)) {
			x, _ := mode.New().(*inBatch)
			defer x.Close()
			x.Start(t.Context(), unobserved{})
			v, err := x.Claim(stores.Claim{Key: stores.Key{ID: []byte{id}}})
			if err != nil {
				t.Error(err)
			}
			handle(v)
			if v.Outcome == stores.Claimed {
				x.Finish(nil)
			}
		}
		var all sync.WaitGroup
		all.Go(func() { // has the only place, alone
			deliver(0, func(stores.Verdict) { <-time.After(time.Second) })
		})
		synctest.Wait()
		begun := time.Now()
		for i := range 32 {
			id := byte(i + 1) // is won
			switch {
			case i >= 24:
				id = byte(i) + 50 // another delivery has the key
			case i >= 8:
				id = byte(i) + 100 // is completed
			}
			all.Go(func() {
				deliver(id, func(v stores.Verdict) {
					waited := time.Since(begun)
					switch {
					case id >= 100 && (v.Outcome != stores.Duplicate || waited > 2*time.Second):
						t.Errorf("%d is %s, after %s", id, v.Outcome, waited)
					case id < 50:
						<-time.After(2 * time.Second)
					case id < 100 && waited < 16*time.Second:
						t.Errorf("%d was asked for after %s", id, waited)
					}
				})
			})
		}
		all.Wait()
		if looks, begins := store.looks.Load(), store.begins.Load(); looks != 24 || begins != 1+8 {
			t.Errorf("%d looks, and %d transactions", looks, begins)
		}
	})
}

// A batch does not look at the order of messages, and takes no rows over: a message with an order key,
// a suspect's counted attempt, a retried message, and a second attempt are claimed alone.
func TestWhatABatchDoesNotLookAtIsClaimedAlone(t *testing.T) {
	for name, change := range map[string]func(*stores.Claim){
		"order key":  func(c *stores.Claim) { c.OrderKey = []byte("order") },
		"takes over": func(c *stores.Claim) { c.Take = 7 },
		"again":      nil,
		"first":      func(*stores.Claim) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := sharing{looks: &atomic.Int32{}, begins: &atomic.Int32{}}
				collector := batch.New(store, batch.Config{Size: 32, From: 1, Places: 1, Time: time.Minute, Claim: time.Minute, Commit: time.Minute, Handler: time.Minute})
				mode := InBatches(InTransactions(store, Bounds{Claim: time.Minute, Commit: time.Minute}), store, collector)
				var all sync.WaitGroup
				var shared atomic.Int32
				for i := range 8 {
					x, _ := mode.New().(*inBatch)
					all.Go(func() {
						defer x.Close()
						x.Start(t.Context(), unobserved{})
						claim := stores.Claim{Key: stores.Key{ID: []byte{byte(i)}}}
						if change == nil {
							x.asked = true
						} else {
							change(&claim)
						}
						if _, err := x.Claim(claim); err != nil {
							t.Error(err)
						}
						if x.runs {
							shared.Add(1)
						}
						x.Finish(nil)
					})
				}
				all.Wait()
				if alone := store.begins.Load(); name == "first" && shared.Load() == 0 || name != "first" && alone != 8 {
					t.Errorf("%d share a transaction, %d are claimed alone", shared.Load(), alone)
				}
			})
		})
	}
}
