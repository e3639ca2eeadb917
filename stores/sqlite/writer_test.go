package sqlite

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Who has waited for the writer longest is the next to have it.
func TestWriterIsHadInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &writer{slot: make(chan struct{}, 1), closed: make(chan struct{})}
		require.NoError(t, w.acquire(t.Context(), 0))
		require.ErrorIs(t, w.acquire(t.Context(), time.Second), errWait)
		var order []int // guarded by the slot
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if err := w.acquire(t.Context(), 0); err != nil {
					t.Error(err)
					return
				}
				defer w.release()
				order = append(order, i)
			})
			synctest.Wait() // it queues
		}
		w.release()
		wg.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	})
}
