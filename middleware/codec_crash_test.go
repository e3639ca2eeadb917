package middleware_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// deadly is a codec that ends the process whenever it is asked: for the store, it never
// returns.
type deadly struct {
	asked atomic.Int32
	over  context.Context //nolint:containedctx // the end of the test
}

func (d *deadly) code(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
	d.asked.Add(1)
	<-d.over.Done()
	return k, errors.New("the process has ended")
}

// The codec ends the process each time that a message which has failed is to be kept.
func TestEncodeThatEndsTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer end()
		store, codec := newLedger(), &deadly{over: ctx}
		row := failedBefore("a", stores.PlacementRedelivered, 3)
		row.Start = true
		store.put(row)
		for range 10 {
			in := newInbox(t, store, func(c *middleware.InboxConfig) {
				c.Retry.MaxAttempts = 3
				c.Keep.Codec = &middleware.Codec{Name: "deadly", Encode: codec.code, Decode: codec.code}
			})
			m := newMessage(ctx, "a")
			m.SetContext(brokers.WithDelivery(ctx, m, brokers.Delivery{Count: 4, Suspect: true}))
			go func() {
				_, _ = in.Middleware(handle(func(*message.Message) error { t.Error("it runs"); return nil }))(m)
			}()
			<-time.After(time.Minute)
			if store.row("a").status == stores.StatusFailed {
				break
			}
		}
		if r := store.row("a"); r.status != stores.StatusFailed || r.failure.Attempts != 3 || r.failure.Content.State != stores.ContentRefused || codec.asked.Load() != 3 {
			t.Errorf("asked %d times: %+v\n%s", codec.asked.Load(), r, store.story())
		}
	})
}

// The codec ends the process each time that a retry worker restores a message.
func TestDecodeThatEndsTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		store, codec := newLedger(), &deadly{over: ctx}
		row := failedBefore("a", stores.PlacementParked, 1)
		row.Content = &stores.Content{State: stores.ContentKept, Codec: "deadly", UUID: "a", Payload: []byte("x")}
		store.put(row)
		for range 10 {
			in := newInbox(t, store, func(c *middleware.InboxConfig) {
				c.Retry.MaxAttempts = 3
				c.Keep.Timeout = time.Hour
				c.Keep.Codec = &middleware.Codec{Name: "deadly", Encode: codec.code, Decode: codec.code}
			})
			w, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{Handlers: map[string]message.HandlerFunc{
				"stock": handle(func(*message.Message) error { t.Error("it runs"); return nil }),
			}})
			if err != nil {
				t.Fatal(err)
			}
			store.mu.Lock()
			store.fault = nil
			store.mu.Unlock()
			running, stop := context.WithCancel(ctx)
			go func() { _ = w.Run(running) }()
			<-time.After(10 * time.Second)
			store.mu.Lock() // for a process that has ended there is no store
			store.fault = func(string) error { return stores.ErrUnavailable }
			store.mu.Unlock()
			stop()
			<-time.After(time.Minute)
			if store.row("a").status == stores.StatusFailed {
				break
			}
		}
		if r := store.row("a"); r.status != stores.StatusFailed || r.failure.Class != stores.ClassCrash || r.failure.Attempts != 3 || codec.asked.Load() > 4 {
			t.Errorf("asked %d times: %+v\n%s", codec.asked.Load(), r, store.story())
		}
		end()
		<-time.After(2 * time.Hour)
	})
}
