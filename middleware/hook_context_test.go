package middleware_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

type ofHook struct{}

// endingHook returns contexts that are over.
type endingHook func(context.Context) context.Context

func (f endingHook) DeliveryStart(ctx context.Context, _ middleware.DeliveryStart) context.Context {
	return f(ctx)
}

func (f endingHook) ClaimStart(ctx context.Context, _ stores.Claim) context.Context { return f(ctx) }

func (f endingHook) LookStart(ctx context.Context, _ stores.Key) context.Context { return f(ctx) }

func (f endingHook) CommitStart(ctx context.Context) context.Context { return f(ctx) }

// watchedStore tells about the contexts of its calls.
type watchedStore struct {
	*ledger
	see func(call string, ctx context.Context)
}

func (s watchedStore) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	s.see("Begin", ctx)
	a, v, err := s.ledger.Begin(ctx, c)
	if a != nil {
		a = watchedAttempt{a, s}
	}
	return a, v, err
}

func (s watchedStore) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	s.see("Look", ctx)
	return s.ledger.Look(ctx, k, f)
}

func (s watchedStore) Record(ctx context.Context, f stores.Failure) (int64, error) {
	s.see("Record", ctx)
	return s.ledger.Record(ctx, f)
}

type watchedAttempt struct {
	stores.Attempt
	store watchedStore
}

func (a watchedAttempt) Commit(ctx context.Context) error {
	a.store.see("Commit", ctx)
	return a.Attempt.Commit(ctx)
}

// Hooks observe: what ends their contexts ends neither a question to the store, which
// would pause the intake for all, nor a handler.
func TestContextsOfHooksGiveTheirValuesAndNotTheirEnds(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]endingHook{
		"canceled": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(context.WithValue(ctx, ofHook{}, "kept"))
			cancel()
			return ctx
		},
		"late": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithDeadline(context.WithValue(ctx, ofHook{}, "kept"), time.Now().Add(-time.Second))
			cancel()
			return ctx
		},
		"without end": func(ctx context.Context) context.Context {
			return context.WithoutCancel(context.WithValue(ctx, ofHook{}, "kept"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			see := func(call string, ctx context.Context) {
				calls++
				if ctx.Err() != nil || ctx.Value(ofHook{}) != "kept" {
					t.Errorf("%s: its context says %v, and has %v of the hook", call, ctx.Err(), ctx.Value(ofHook{}))
				}
				if ctx.Done() == nil {
					t.Errorf("%s has no bound any more", call)
				}
			}
			store := watchedStore{newLedger(), see}
			in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hooks, c.Hold.Limit = []middleware.Hook{hook}, 1 })
			_, err := in.Middleware(handle(func(m *message.Message) error {
				see("the handler", m.Context())
				if _, bounded := m.Context().Deadline(); !bounded {
					t.Error("the handler has no deadline")
				}
				return nil
			}))(newMessage(suspect(t.Context()), "a"))
			if err != nil || calls != 5 { // looked, counted before it began, begun, run, committed
				t.Errorf("%v after %d calls", err, calls)
			}
		})
	}
}
