package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// handlerContext has the name of a handler, as Watermill's router gives it.
func handlerContext(ctx context.Context, handler string) context.Context {
	asked := &keySpy{Context: ctx}
	message.HandlerNameFromCtx(asked)
	return context.WithValue(ctx, asked.key, handler)
}

// keySpy learns a key that Watermill does not export.
type keySpy struct {
	context.Context

	key any
}

func (s *keySpy) Value(key any) any {
	s.key = key
	return nil
}

// A mistake of the program is there again with each redelivery. Nacked at once, a message
// would soon reach the limit of a broker that has one.
func TestMessagesOfMistakenHandlersAreHeld(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fixed string
		want  error
	}{
		"no handler name":     {"", middleware.ErrNoHandlerName},
		"a shared consumer":   {"stock", middleware.ErrConsumerShared},
		"during the shutdown": {"", middleware.ErrNoHandlerName},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				ctx, stop := context.WithCancel(withDelivery(t.Context(), brokers.Delivery{Count: 1}))
				defer stop()
				store, ends := newLedger(), &ends{}
				in := newInbox(t, store, ends.configure, func(c *middleware.InboxConfig) {
					c.Handler, c.Hold.Limit, c.Hold.Max = test.fixed, time.Minute, 1
					c.Logger = slog.New(slog.NewTextHandler(&out, nil))
				})
				wrapped := in.Middleware(handle(func(*message.Message) error { return nil }))
				want := time.Minute
				if test.fixed != "" {
					if err := in.Register(t.Context(), "other", ""); err != nil {
						t.Fatal(err)
					}
					ctx = handlerContext(ctx, "this")
				}
				if name == "during the shutdown" {
					want = time.Second
					time.AfterFunc(want, stop)
				}
				refused := make(chan error, 1)
				begun := time.Now()
				go func() { _, err := wrapped(newMessage(ctx, "a")); refused <- err }()
				synctest.Wait()
				if test.fixed != "" { // nobody else's messages wait for that, though Hold.Max is 1
					if _, err := wrapped(newMessage(handlerContext(t.Context(), "other"), "b")); err != nil || time.Since(begun) > 0 || store.row("b").status != stores.StatusCompleted {
						t.Errorf("%v after %s\n%s", err, time.Since(begun), store.story())
					}
				}
				if err := <-refused; !errors.Is(err, test.want) || !errors.Is(err, middleware.ErrNotNow) || time.Since(begun) != want {
					t.Errorf("%v after %s, want %v after %s", err, time.Since(begun), test.want, want)
				}
				if !strings.Contains(out.String(), "delivery is held") || !strings.Contains(out.String(), "level=ERROR") {
					t.Errorf("nothing says that it is held:\n%s", out.String())
				}
				if e := ends.last(); e.Result != middleware.ResultNotNow || e.Held != want {
					t.Errorf("%+v", e)
				}
				if g := givenBack(ctx); g.Failed || g.After == 0 {
					t.Errorf("given back as %+v", g)
				}
			})
		})
	}
}
