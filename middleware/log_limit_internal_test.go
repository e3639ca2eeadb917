package middleware

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func TestLogLimitCountsWhatItLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logLimit
		told := make(map[string][]int)
		send := func(group string, n int) (passed int) {
			for range n {
				if l.pass(alike{group: group}, func(left int) { told[group] = append(told[group], left) }) {
					passed++
				}
			}
			return passed
		}
		if a, b := send("a", 100), send("b", 3); a != alikeLogged || b != 3 {
			t.Errorf("%d and %d lines passed", a, b)
		}
		<-time.After(alikeWithin + time.Second)
		synctest.Wait()
		if fmt.Sprint(told) != fmt.Sprintf("map[a:[%d]]", 100-alikeLogged) {
			t.Errorf("told was %v", told)
		}
		if n := send("a", 6); n != alikeLogged {
			t.Errorf("%d lines passed in the next minute", n)
		}
		<-time.After(alikeWithin + time.Second)
		synctest.Wait()
		if len(told["a"]) != 2 || len(l.kinds) != 0 {
			t.Errorf("told was %v, %d kinds are kept", told, len(l.kinds))
		}
	})
}

func TestLogLimitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l logLimit
		left := 0
		for i := range 10 * maxAlike {
			l.pass(alike{consumer: stores.Consumer{Handler: fmt.Sprint(i)}}, func(n int) { left += n })
		}
		if len(l.kinds) > maxAlike+1 {
			t.Errorf("%d kinds are kept", len(l.kinds))
		}
		<-time.After(alikeWithin + time.Second)
		synctest.Wait()
		if want := 9*maxAlike - alikeLogged; left != want {
			t.Errorf("%d lines were left out and told, want %d", left, want)
		}
	})
}
