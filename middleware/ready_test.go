package middleware_test

import (
	"context"
	"errors"
	"testing"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Nobody asks a store that is back but who wants to know whether the intake is paused.
func TestReadyAsksTheStore(t *testing.T) {
	t.Parallel()
	store, hook := newLedger(), &intakeHook{}
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hooks = []middleware.Hook{hook} })
	if err := in.Register(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	if err := in.Ready(t.Context()); err != nil || store.calls("begin") != 0 {
		t.Errorf("before a pause: %v, asked %d times", err, store.calls("begin"))
	}
	well := store.failing("begin")
	ctx, cancel := context.WithCancel(t.Context())
	hook.onPause = cancel // the message is given back, and comes no more
	if err := crowd(ctx, in, 1, succeed)()["0"]; err == nil {
		t.Fatal("the message was handled")
	}
	asked := store.calls("begin")
	if err := in.Ready(t.Context()); !errors.Is(err, stores.ErrUnavailable) || store.calls("begin") != asked+1 {
		t.Errorf("while the store is down: %v, asked %d times", err, store.calls("begin")-asked)
	}
	well()
	if err := in.Ready(t.Context()); err != nil || in.Paused() != nil {
		t.Errorf("when the store is back: %v, paused by %v", err, in.Paused())
	}
	if err := in.Ready(t.Context()); err != nil || store.calls("begin") != asked+2 {
		t.Errorf("after the pause: %v, asked %d times", err, store.calls("begin")-asked)
	}
	if len(hook.resumed) != 1 || len(store.rows) != 0 {
		t.Errorf("resumed %d times, rows %v", len(hook.resumed), store.rows)
	}
}
