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

// sharing is a store whose batches are always committed.
type sharing struct{}

func (sharing) BatchLimit(int) int { return 2 }

func (sharing) BeginBatch(_ context.Context, claims []stores.Claim) (stores.Batch, error) {
	b := &shared{}
	for range claims {
		b.members = append(b.members, &member{})
	}
	return b, nil
}

// Begin is for those that run alone, some time later.
func (sharing) Begin(context.Context, stores.Claim) (stores.Attempt, stores.Verdict, error) {
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
		collector := batch.New(sharing{}, batch.Config{Size: 2, From: 1, Places: 4, Time: time.Minute, Claim: time.Minute, Commit: time.Minute, Handler: time.Minute})
		mode := InBatches(InTransactions(sharing{}, Bounds{Claim: time.Minute, Commit: time.Minute}), collector)
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
