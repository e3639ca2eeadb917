package middleware_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// opening is a middleware that opens what reverse has closed.
func opening(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		m.Payload = reversed(m.Payload)
		m.UUID = "opened " + m.UUID
		m.Metadata.Set("opened", m.Metadata.Get("opened")+"once")
		return next(m)
	}
}

// Where a middleware that changes messages stands, and what to name in the worker, as the
// documents say: the handler sees the same each time.
func TestWhereAMiddlewareStandsAndWhatToNameInTheWorker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		around func(in *middleware.Inbox) []message.HandlerMiddleware // on the router
		inside func(message.HandlerFunc) message.HandlerFunc          // part of the handler
		named  []message.HandlerMiddleware                            // in the worker
		kept   string
	}{
		"behind Arrival": {
			around: func(in *middleware.Inbox) []message.HandlerMiddleware {
				return []message.HandlerMiddleware{middleware.Arrival, opening, in.Middleware}
			},
			named: []message.HandlerMiddleware{opening},
			kept:  "b fo daolyap",
		},
		"the same list for both": {
			around: func(in *middleware.Inbox) []message.HandlerMiddleware {
				return []message.HandlerMiddleware{middleware.Arrival, opening, in.Middleware}
			},
			named: []message.HandlerMiddleware{middleware.Arrival, opening},
			kept:  "b fo daolyap",
		},
		"before the inbox without Arrival": {
			around: func(in *middleware.Inbox) []message.HandlerMiddleware {
				return []message.HandlerMiddleware{opening, in.Middleware}
			},
			kept: "payload of b",
		},
		"inside the inbox": {
			around: func(in *middleware.Inbox) []message.HandlerMiddleware {
				return []message.HandlerMiddleware{in.Middleware, opening}
			},
			named: []message.HandlerMiddleware{opening},
			kept:  "b fo daolyap",
		},
		"part of the handler": {
			around: func(in *middleware.Inbox) []message.HandlerMiddleware {
				return []message.HandlerMiddleware{in.Middleware}
			},
			inside: opening,
			kept:   "b fo daolyap",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, store := &copies{}, newLedger()
				in := newInbox(t, store, func(config *middleware.InboxConfig) {
					config.Handler = ""
					config.Keys = keys.First(keys.Metadata("id"))
					config.Retry.MaxAttempts = 2
					config.DeadLetters = middleware.DeadLetterConfig{Publisher: c, Topic: "dead"}
				})
				var seen []string
				handler := handle(func(m *message.Message) error {
					seen = append(seen, m.UUID+", "+string(m.Payload)+", "+m.Metadata.Get("opened"))
					return errors.New("not yet")
				})
				if test.inside != nil {
					handler = test.inside(handler)
				}
				chain := handler
				for _, m := range slices.Backward(test.around(in)) {
					chain = m(chain)
				}
				m := newMessage(inHandler(t, "stock"), "b")
				m.Payload = reversed(m.Payload)
				m.Metadata.Set("id", "b")
				if _, err := chain(m); err != nil {
					t.Fatal(err)
				}
				if kept := store.row("h:b").failure.Content; string(kept.Payload) != test.kept {
					t.Errorf("kept %+v", kept)
				}
				work(t, in, nil, func() {
					waitUntil(t, func() bool { return store.row("h:b").status == stores.StatusFailed })
				}, func(config *middleware.RetryWorkerConfig) {
					config.Handlers = map[string]message.HandlerFunc{"stock": handler}
					config.Middlewares = test.named
				})
				const want = "opened b, payload of b, once"
				if len(seen) != 2 || seen[0] != want || seen[1] != want {
					t.Errorf("the handler saw %q", seen)
				}
				if len(c.published) != 1 || string(c.published[0].Payload) != test.kept {
					t.Errorf("copied %v", c.published)
				}
			})
		})
	}
}

// A Retry outside of Arrival begins with the message as it arrived, and quarantine keeps it.
func TestArrivalIsUndoneAndKeptInQuarantine(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Limits.Payload = 3 })
	m := newMessage(context.Background(), "a")
	m.Payload = []byte("4321")
	before := m.Context()
	inPlace := func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			copy(m.Payload, reversed(m.Payload))
			return opening(next)(m)
		}
	}
	if _, err := middleware.Arrival(inPlace(in.Middleware(handle(mustNotRun(t)))))(m); err != nil {
		t.Fatal(err)
	}
	if m.UUID != "a" || string(m.Payload) != "4321" || len(m.Metadata) != 0 || m.Context() != before {
		t.Errorf("left as %+v", m)
	}
	if q := store.quarantined; len(q) != 1 || q[0].UUID != "a" || string(q[0].Payload) != "4321" || len(q[0].Metadata) != 0 {
		t.Errorf("kept %+v", q)
	}
}
