package sqs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
)

// TestTwelveHours are from the receive on, whatever is extended and delayed meanwhile.
func TestTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const margin = 10 * time.Second
		it := newItem(&queue{}, types.Message{}, time.Now(), 30*time.Second)
		back := func(delay time.Duration) time.Duration {
			it.from = time.Time{}
			if delay > 0 {
				it.from = time.Now().Add(delay)
			}
			return it.untilFrom()
		}
		for _, c := range []struct{ after, delay, want time.Duration }{
			{0, 0, 0},
			{0, 1500 * time.Millisecond, 2 * time.Second}, // not before
			{0, 12 * time.Hour, 12*time.Hour - margin},
			{0, 1000 * time.Hour, 12*time.Hour - margin},
			{11 * time.Hour, 12 * time.Hour, time.Hour - margin},
			{11 * time.Hour, time.Minute, time.Minute},
			{12*time.Hour - margin, time.Minute, 0},
			{13 * time.Hour, time.Minute, 0},
		} {
			<-time.After(time.Until(it.received.Add(c.after)))
			if got := back(c.delay); got != c.want {
				t.Errorf("%s after the receive, a delay of %s is %s: want %s", c.after, c.delay, got, c.want)
			}
		}
	})
}

// TestTakenBackAfterTwelveHours: what cannot be hidden any longer is let go of a moment
// before others get it, and its handler is told.
func TestTakenBackAfterTwelveHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k keeper
		config, err := brokers.SubscriberConfig{Group: "group"}.WithDefaults("sqs")
		if err != nil {
			t.Fatal(err)
		}
		k.init(&subscription{Desk: handout.New(t.Context(), config, nil), visibility: 30 * time.Second})
		it := newItem(&queue{}, types.Message{}, time.Now(), 30*time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		k.keep([]*item{it})
		k.offer(it, cancel)
		k.begin(it)
		<-time.After(11*time.Hour + 59*time.Minute)
		if due := k.due(); len(due) != 1 || ctx.Err() != nil {
			t.Errorf("a minute before the end %d are extended, %v", len(due), context.Cause(ctx))
		}
		<-time.After(50 * time.Second)
		if due := k.due(); len(due) != 0 || !errors.Is(context.Cause(ctx), ErrTakenBack) || len(k.items) != 0 {
			t.Errorf("at the end %d are extended, %v", len(due), context.Cause(ctx))
		}
	})
}
