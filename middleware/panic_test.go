package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// hostile is what a message may bring a handler to say.
var hostile = "\x1b[2J\u202eboom\n" + strings.Repeat("boom ", 2<<20) // 10 MB

// written is what has been written to it. Goroutines of a router still log when it is closed.
type written struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// routed runs a handler once, behind the inbox on a Watermill router with Watermill's own
// plain logger, and returns what that has written.
func routed(t *testing.T, in *middleware.Inbox, h message.NoPublishHandlerFunc, around ...message.HandlerMiddleware) string {
	t.Helper()
	var out written
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NewStdLoggerWithOut(&out, false, false))
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan struct{}, 1)
	router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			defer func() {
				select {
				case handled <- struct{}{}:
				default:
				}
			}()
			return next(m)
		}
	})
	router.AddMiddleware(around...)
	router.AddMiddleware(in.Middleware)
	router.AddConsumerHandler("stock", "orders", pubsub, h)
	if err := pubsub.Publish("orders", message.NewMessage("a", nil)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-handled
	if err := router.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return out.String()
}

func TestPanicGoesOnUpCutAndQuoted(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{"text": hostile, "error": errors.New(hostile), "bytes": []byte(hostile), "panicking error": panickingError{}} {
		for around, middlewares := range map[string][]message.HandlerMiddleware{"router": nil, "Recoverer": {wmmiddleware.Recoverer}} {
			t.Run(name+" to "+around, func(t *testing.T) {
				t.Parallel()
				in := newInbox(t, newLedger(), func(c *middleware.InboxConfig) { c.Handler = "" })
				logged := routed(t, in, func(*message.Message) error { panic(value) }, middlewares...)
				if len(logged) > 64<<10 {
					t.Errorf("%d bytes were logged", len(logged))
				}
				if strings.ContainsAny(logged, "\x1b\u202e") {
					t.Errorf("control characters were logged: %.300q", logged)
				}
				if !strings.Contains(logged, "the handler panicked") {
					t.Errorf("logged %s", logged)
				}
			})
		}
	}
}

// Whoever is around the inbox can have the original.
func TestPanicThatGoesUpWrapsTheOriginal(t *testing.T) {
	t.Parallel()
	for _, value := range []any{shelfError{"shelf 7"}, fmt.Errorf("wrapped: %w", shelfError{"shelf 7"}), "boom"} {
		func() {
			defer func() {
				p, ok := recover().(*middleware.PanicError)
				if !ok || p.Value() != value {
					t.Fatalf("%T", p)
				}
				if typed, found := errors.AsType[shelfError](p); found != (value != "boom") || found && typed.of != "shelf 7" {
					t.Errorf("%v, %v of %v", typed, found, value)
				}
			}()
			_, _ = newInbox(t, newLedger()).Middleware(handle(func(*message.Message) error { panic(value) }))(newMessage(t.Context(), "a"))
		}()
	}
}

type shelfError struct{ of string }

func (e shelfError) Error() string { return "empty: " + e.of }

func TestStackOfAPanicIsLoggedAndKept(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Logger = slog.New(slog.NewJSONHandler(&out, nil)) })
	func() {
		defer func() { _ = recover() }()
		_, _ = in.Middleware(panickingHandler)(newMessage(t.Context(), "a"))
	}()
	for _, want := range []string{`"stack":"github.com/millpond-go/millpond/middleware_test.panickingHandler`, `"id":"u:a"`, `"topic":`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in %s", want, out.String())
		}
	}
	f := store.row("a").failure
	if !strings.HasPrefix(f.Error, "middleware: the handler panicked: boom\n") || !strings.Contains(f.Error, "panickingHandler (inbox_test.go:") {
		t.Errorf("kept as %s", f.Error)
	}
	if strings.Contains(f.Error, "middleware.(*visit)") || len(f.Error) > stores.MaxErrorBytes {
		t.Errorf("%d bytes are kept: %s", len(f.Error), f.Error)
	}
	if want := stores.CauseOf(stores.ClassPanic, "middleware: the handler panicked: boom"); f.Cause != want {
		t.Error("the stack is part of the group")
	}
}

// The reason why there is no further attempt stays in front of the stack.
func TestStackOfTheLastPanicComesAfterTheReason(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 1 })
	func() {
		defer func() { _ = recover() }()
		_, _ = in.Middleware(handle(func(*message.Message) error { panic(hostile) }))(newMessage(t.Context(), "a"))
	}()
	f := store.row("a").failure
	first, stack, _ := strings.Cut(f.Error, "\n")
	if !strings.HasSuffix(first, "[given up: 1 of 1 attempts failed]") || !strings.Contains(stack, "panic_test.go:") || len(f.Error) > stores.MaxErrorBytes {
		t.Errorf("kept as %s", f.Error)
	}
}

func TestErrorGoesUpCutAndQuoted(t *testing.T) {
	t.Parallel()
	logged := routed(t, newInbox(t, newLedger(), redelivered, func(c *middleware.InboxConfig) { c.Handler = "" }),
		func(*message.Message) error { return fmt.Errorf("%w: %s", shelfError{"shelf 7"}, hostile) })
	line := strings.SplitAfter(logged[max(strings.Index(logged, "Handler returned error"), 0):], "\n")[0]
	if !strings.Contains(line, "empty: shelf 7") || len(logged) > 64<<10 || strings.ContainsAny(logged, "\x1b\u202e") || !strings.HasSuffix(line, "message_uuid=a \n") {
		t.Errorf("%d bytes were logged: %.300q", len(logged), logged)
	}
	_, err := newInbox(t, newLedger(), redelivered).Middleware(handle(func(*message.Message) error { return shelfError{"shelf 7"} }))(newMessage(t.Context(), "a"))
	if _, ok := errors.AsType[shelfError](err); !ok || err.Error() != "empty: shelf 7" {
		t.Errorf("%T: %v", err, err)
	}
}
