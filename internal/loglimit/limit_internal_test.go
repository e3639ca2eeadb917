package loglimit

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func TestLimitCountsWhatItLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limit
		told := make(map[string][]int)
		send := func(cause string, n int) (passed int) {
			for range n {
				if l.Pass(Kind{Cause: cause}, func(left int) { told[cause] = append(told[cause], left) }) {
					passed++
				}
			}
			return passed
		}
		if a, b := send("a", 100), send("b", 3); a != Logged || b != 3 {
			t.Errorf("%d and %d lines passed", a, b)
		}
		<-time.After(Within + time.Second)
		synctest.Wait()
		if fmt.Sprint(told) != fmt.Sprintf("map[a:[%d]]", 100-Logged) {
			t.Errorf("told was %v", told)
		}
		if n := send("a", 6); n != Logged {
			t.Errorf("%d lines passed in the next minute", n)
		}
		<-time.After(Within + time.Second)
		synctest.Wait()
		if len(told["a"]) != 2 || len(l.kinds) != 0 {
			t.Errorf("told was %v, %d kinds are kept", told, len(l.kinds))
		}
	})
}

func TestLimitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limit
		var left atomic.Int64 // the windows end at once, each on a goroutine of its own
		for i := range 10 * Kinds {
			l.Pass(Kind{Consumer: stores.Consumer{Handler: fmt.Sprint(i)}}, func(n int) { left.Add(int64(n)) })
		}
		l.mu.Lock()
		kept := len(l.kinds)
		l.mu.Unlock()
		if kept > Kinds+1 {
			t.Errorf("%d kinds are kept", kept)
		}
		<-time.After(Within + time.Second)
		synctest.Wait()
		if want := int64(9*Kinds - Logged); left.Load() != want {
			t.Errorf("%d lines were left out and told, want %d", left.Load(), want)
		}
	})
}
