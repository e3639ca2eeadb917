package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
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

// mortal is the store as one process sees it, which renews nothing once it has ended.
type mortal struct {
	*ledger

	ended atomic.Bool
}

func (m *mortal) Renew(ctx context.Context, reserved []stores.Retry, d time.Duration) error {
	if m.ended.Load() {
		return stores.ErrUnavailable
	}
	return m.ledger.Renew(ctx, reserved, d)
}

// The codec ends the process each time that a retry worker restores a message.
func TestDecodeThatEndsTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		store, codec, letters := newLedger(), &deadly{over: ctx}, &copies{}
		var logged bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&logged, nil))
		row := failedBefore("a", stores.PlacementParked, 1)
		row.Content = &stores.Content{State: stores.ContentKept, Codec: "deadly", UUID: "a", Payload: []byte("x")}
		store.put(row)
		for range 10 {
			process := &mortal{ledger: store}
			in := newInbox(t, process, withCopies(letters), func(c *middleware.InboxConfig) {
				c.Logger = logger
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
			process.ended.Store(true)
			stop()
			<-time.After(time.Minute)
			if store.row("a").status == stores.StatusFailed {
				break
			}
		}
		// Three more times for the copy.
		if r := store.row("a"); r.status != stores.StatusFailed || r.failure.Class != stores.ClassCrash || r.failure.Attempts != 3 || codec.asked.Load() > 7 {
			t.Errorf("asked %d times: %+v\n%s", codec.asked.Load(), r, store.story())
		}
		if r := store.row("a"); len(letters.published) > 0 || !strings.Contains(r.failure.Error, "[no copy: ") || !strings.Contains(logged.String(), "a dead letter has no copy") {
			t.Errorf("%d copies, its row says %q, and the log\n%s", len(letters.published), r.failure.Error, logged.String())
		}
		end()
		<-time.After(2 * time.Hour)
	})
}

// The answer to the count of a codec's call is lost. The codec is called at once, and its call is not
// counted again.
func TestCountOfAnEncodingWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, codec, encodings, begun := &losesStarts{ledger: newLedger()}, reverse(), 0, time.Now()
		encode := codec.Encode
		codec.Encode = func(ctx context.Context, k middleware.Kept) (middleware.Kept, error) {
			encodings++
			return encode(ctx, k)
		}
		row := failedBefore("a", stores.PlacementRedelivered, 3)
		row.Start, row.Class = true, stores.ClassCrash
		version := store.put(row)
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts, c.Keep.Codec = 3, codec })
		_, err := in.Middleware(handle(mustNotRun(t)))(newMessage(suspect(t.Context()), "a"))
		took, r := time.Since(begun), store.row("a")
		if err != nil || r.status != stores.StatusFailed || r.failure.Attempts != 3 || r.failure.Class != stores.ClassCrash || encodings != 1 {
			t.Errorf("%v, encoded %d times, %+v\n%s", err, encodings, r, store.story())
		}
		if changes := r.version() - version; changes != 2 || took > time.Second {
			t.Errorf("%d changes of the row in %s, want the count and the failure at once\n%s", changes, took, store.story())
		}
	})
}

// anotherWorker is a ledger that refuses the first start. Meanwhile the reservation has run out, and
// another worker has reserved the message and counted the same attempt, which ends its process.
type anotherWorker struct {
	*ledger

	once sync.Once
}

func (a *anotherWorker) Record(ctx context.Context, f stores.Failure) (version int64, err error) {
	refused := false
	a.once.Do(func() {
		refused = true
		a.mu.Lock()
		a.rows["a"].due = time.Now()
		a.mu.Unlock()
		due, _ := a.Due(ctx, stores.DueQuery{Consumer: f.Key.Consumer, Limit: 1, Reserve: f.DueIn})
		f.Version = due[0].State.Version
		_, err = a.ledger.Record(ctx, f)
		err = errors.Join(err, stores.ErrUnavailable)
	})
	if refused {
		return 0, err
	}
	return a.ledger.Record(ctx, f)
}

// A worker whose count was not written must not take the next worker's for its own: that one's
// process has ended, and its attempt counts.
func TestCountOfAnotherWorkerIsNotItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, codec := &anotherWorker{ledger: newLedger()}, reverse()
		kept, err := codec.Encode(t.Context(), middleware.Kept{Payload: []byte("payload of a")})
		if err != nil {
			t.Fatal(err)
		}
		row := failedBefore("a", stores.PlacementParked, 1)
		row.Start, row.Class = true, stores.ClassCrash
		row.Content = &stores.Content{State: stores.ContentKept, Codec: codec.Name, UUID: "a", Payload: kept.Payload}
		store.put(row)
		w, err := middleware.NewRetryWorker(newInbox(t, store, func(c *middleware.InboxConfig) { c.Keep.Codec = codec }), middleware.RetryWorkerConfig{
			Handlers: map[string]message.HandlerFunc{"stock": handle(func(*message.Message) error { return middleware.Permanent(errors.New("boom")) })},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		<-time.After(time.Hour)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if r := store.row("a"); r.status != stores.StatusFailed || r.failure.Class != stores.ClassPermanent || r.failure.Attempts != 3 {
			t.Errorf("%d attempts, want 3: the row is %v %+v\n%s", r.failure.Attempts, r.status, r.failure, store.story())
		}
	})
}

// The handler, or another message, has ended the process each time that a retry worker ran
// a message. Its codec is asked once more, for the copy.
func TestMessageThatEndsTheProcessIsCopied(t *testing.T) {
	t.Parallel()
	away := errors.New("no key service")
	for name, test := range map[string]struct {
		codec    bool
		decode   func(n int) error
		letter   string
		recorded string
	}{
		"as it arrived":       {letter: "payload of a"},
		"encoded":             {codec: true, letter: "payload of a"},
		"codec away":          {codec: true, decode: func(n int) error { return map[bool]error{true: away}[n < 3] }, letter: "payload of a"},
		"codec away for good": {codec: true, decode: func(int) error { return away }, recorded: "[no copy: "},
		"codec that refuses":  {codec: true, decode: func(int) error { return middleware.Permanent(away) }, recorded: "[no copy: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, letters, decodings := newLedger(), &copies{}, 0
				row := failedBefore("a", stores.PlacementParked, 3)
				row.Class, row.Start = stores.ClassCrash, true
				row.Content = &stores.Content{State: stores.ContentKept, UUID: "a", Payload: []byte("payload of a")}
				codec := reverse()
				if test.codec {
					kept, err := codec.Encode(t.Context(), middleware.Kept{Payload: row.Content.Payload})
					if err != nil {
						t.Fatal(err)
					}
					row.Content.Codec, row.Content.Payload = codec.Name, kept.Payload
				}
				decode := codec.Decode
				codec.Decode = func(ctx context.Context, k middleware.Kept) (middleware.Kept, error) {
					if decodings++; test.decode != nil {
						if err := test.decode(decodings); err != nil {
							return k, err
						}
					}
					return decode(ctx, k)
				}
				store.put(row)
				in := newInbox(t, store, withCopies(letters), func(c *middleware.InboxConfig) {
					c.Retry.MaxAttempts, c.Retry.MaxAge, c.Keep.Codec = 3, time.Hour, codec
				})
				w, err := middleware.NewRetryWorker(in, middleware.RetryWorkerConfig{Handlers: map[string]message.HandlerFunc{
					"stock": handle(func(*message.Message) error { t.Error("it runs"); return nil }),
				}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				<-time.After(3 * time.Hour)
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				r, found := store.row("a"), ""
				for _, letter := range letters.published {
					found += string(letter.Payload)
				}
				if r.status != stores.StatusFailed || r.failure.Class != stores.ClassCrash || r.failure.Attempts != 3 || found != test.letter || !strings.Contains(r.failure.Error, test.recorded) {
					t.Errorf("the copies are %q, and the row %v %+v\n%s", found, r.status, r.failure, store.story())
				}
			})
		})
	}
}
