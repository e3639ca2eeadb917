package middleware_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
)

// A service that is told to stop while it starts must not hang.
func TestRetryWorkerStopsWhileItStarts(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			in := newInbox(t, newLedger())
			ctx, stop := context.WithCancel(t.Context())
			worker, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{
				Handlers: map[string]message.HandlerFunc{"": handle(func(*message.Message) error { return nil })},
			})
			if err != nil {
				t.Fatal(err)
			}
			stop()
			start := time.Now()
			if err := worker.Run(ctx); err != nil || time.Since(start) > time.Second {
				t.Errorf("%v after %s", err, time.Since(start))
			}
		})
	}
}
