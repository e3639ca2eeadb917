package execute

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A call that ends just when its time is over: the timer has struck, and may cancel the
// context at any moment from then on.
func TestBoundOfOneCallNeverEndsTheNext(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var p patience
			defer p.end()
			p.start(t.Context(), time.Second)
			<-time.After(time.Second)
			_ = p.stop("ClaimTimeout", nil)
			ctx := p.start(t.Context(), time.Minute)
			synctest.Wait()
			if err := ctx.Err(); err != nil {
				t.Fatalf("the next call is %v", err)
			}
		})
	}
}

// The same for a call that panics at that moment: the timer outlives the delivery.
func TestBoundOfACallThatPanickedNeverEndsTheNext(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var p patience
			defer func() { p.end() }()
			p.start(t.Context(), time.Second)
			<-time.After(time.Second)
			p.end()
			ctx := p.start(t.Context(), time.Minute)
			synctest.Wait()
			if err := ctx.Err(); err != nil {
				t.Fatalf("the next call is %v", err)
			}
			_ = p.stop("ClaimTimeout", nil)
		})
	}
}

func TestTimerServesTheNextDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p patience
		p.start(t.Context(), time.Second)
		_ = p.stop("ClaimTimeout", nil)
		p.end()
		kept := p.alarm
		ctx := p.start(t.Context(), time.Minute)
		<-ctx.Done()
		if err := p.stop("ClaimTimeout", ctx.Err()); !errors.Is(err, context.DeadlineExceeded) || kept == nil || p.alarm != nil {
			t.Errorf("%v, with timer %v, and then %v", err, kept, p.alarm)
		}
	})
}

func TestBoundThatStrikesIsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p patience
		defer p.end()
		ctx := p.start(t.Context(), time.Second)
		<-ctx.Done()
		err := p.stop("CommitTimeout", ctx.Err())
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "InboxConfig.CommitTimeout, 1s") {
			t.Error(err)
		}
		p.start(t.Context(), time.Second)
		if err := p.stop("CommitTimeout", context.Canceled); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that was in time: %v", err)
		}
	})
}

// A delivery that has to claim again makes calls after the end of its first try.
func TestCallsAfterTheEnd(t *testing.T) {
	var p patience
	p.start(t.Context(), time.Minute)
	_ = p.stop("ClaimTimeout", nil)
	p.end()
	if err := p.start(t.Context(), time.Minute).Err(); err != nil {
		t.Error(err)
	}
	p.end()
}
