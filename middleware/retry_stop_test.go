package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
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

// A worker that stops while a codec decodes has begun nothing: neither has anything crashed,
// nor is the message unreadable because the stop has ended the codec's context.
func TestStopWhileACodecDecodes(t *testing.T) {
	t.Parallel()
	for name, suspect := range map[string]bool{"suspect": true, "not suspect": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 { // the router may still take what it is handed
				synctest.Test(t, func(t *testing.T) { stopWhileDecoding(t, suspect) })
			}
		})
	}
}

func stopWhileDecoding(t *testing.T, suspect bool) {
	store, codec := newLedger(), reverse()
	row := failedBefore("a", stores.PlacementParked, 1)
	row.Start = suspect
	row.Content = &stores.Content{State: stores.ContentKept, Codec: codec.Name, UUID: "a", Payload: []byte("x")}
	store.put(row)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	codec.Decode = func(ctx context.Context, k middleware.Kept) (middleware.Kept, error) {
		stop()
		<-ctx.Done()
		return k, errors.New("the key service has not answered") // not every client wraps the context's error
	}
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Handler, c.Keep.Codec = "", codec })
	worker, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{
		Handlers: map[string]message.HandlerFunc{"stock": handle(func(*message.Message) error { t.Error("it runs"); return nil })},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil {
		t.Error(err)
	}
	if r := store.row("a"); r.status != stores.StatusPending || r.failure.Attempts != 1 || r.failure.Start || r.failure.Class == stores.ClassUnreadable {
		t.Errorf("not begun, and the row is %v %+v\n%s", r.status, r.failure, store.story())
	}
}
