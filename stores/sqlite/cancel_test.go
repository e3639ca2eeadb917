package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// Whenever callers give up, the writer is free for others, and nothing is lost.
func TestCallersThatGiveUp(t *testing.T) {
	o := open(t)
	const messages = 50
	versions := make([]int64, messages)
	for i := range versions {
		versions[i] = o.record(failureOf(fmt.Sprint(i)))
	}
	bounded := within(t, time.Minute)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithCancel(bounded)
				timer := time.AfterFunc(rand.N(2*time.Millisecond), cancel)
				i := rand.N(messages)
				f := failureOf(fmt.Sprint(i))
				f.Version = versions[i]
				switch rand.N(5) {
				case 0:
					_, _ = o.Due(ctx, stores.DueQuery{Consumer: billing, Limit: 10, Reserve: time.Millisecond})
				case 1:
					_, _ = o.Record(ctx, f)
				case 2:
					_, _ = o.Change(ctx, stores.Change{Verb: stores.VerbRetry, Limit: 5})
				case 3:
					_, _ = o.Messages(ctx, stores.MessageQuery{Limit: 10})
				case 4:
					claim := claimOf(fmt.Sprint(i))
					claim.Take = f.Version
					if a, _, err := o.Begin(ctx, claim); err == nil && a != nil {
						_ = a.Rollback(ctx)
					}
				}
				timer.Stop()
				cancel()
			}
		})
	}
	wg.Wait()
	require.NoError(t, bounded.Err())
	require.Eventually(t, func() bool { return waiting(o) == 0 }, 30*time.Second, time.Millisecond)
	for i := range messages {
		m := o.message(fmt.Sprint(i))
		take := claimOf(fmt.Sprint(i))
		take.Take = m.Version
		require.NoError(t, o.begin(take).Commit(bounded))
	}
	o.requireCounts(messages, 0)
}
