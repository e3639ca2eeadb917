package middleware_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Each message is published with the context of the handler of the one before. What a handler
// asks its context for must not cost twice as much with each of them.
func TestChainOfTravellingContexts(t *testing.T) {
	t.Parallel()
	in := newInbox(t, newLedger())
	type absent struct{}
	var handler message.HandlerFunc
	length, asked := 0, 0
	handler = in.Middleware(handle(func(m *message.Message) error {
		if m.Context().Value(absent{}) == nil {
			asked++
		}
		if length++; length == 200 {
			return nil
		}
		_, err := handler(newMessage(m.Context(), strings.Repeat("x", length)))
		return err
	}))
	done := make(chan error, 1)
	go func() { _, err := handler(newMessage(t.Context(), "first")); done <- err }()
	select {
	case err := <-done:
		if err != nil || asked != 200 {
			t.Errorf("%v after %d messages", err, asked)
		}
	case <-time.After(time.Minute):
		t.Fatal("a chain of 200 messages does not end")
	}
}

type askingHook struct{ in **middleware.Inbox }

func (h askingHook) IntakePaused(error)          { _ = (*h.in).Paused() }
func (h askingHook) IntakeResumed(time.Duration) { _ = (*h.in).Paused() }

func TestHookMayAskWhetherTheIntakeIsPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var in *middleware.Inbox
		away := 2
		in = newInbox(t, &scriptedStore{begin: func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
			if away--; away >= 0 {
				return nil, stores.Verdict{}, stores.ErrUnavailable
			}
			return &scriptedAttempt{}, stores.Verdict{Outcome: stores.Claimed}, nil
		}}, func(c *middleware.InboxConfig) { c.Hooks = append(c.Hooks, askingHook{&in}) })
		if _, err := in.Middleware(handle(func(*message.Message) error { return nil }))(newMessage(t.Context(), "a")); err != nil || in.Paused() != nil {
			t.Error(err, in.Paused())
		}
	})
}

// waitingPublisher waits for the end of its message's context, as one whose broker is full.
type waitingPublisher struct{}

func (waitingPublisher) Publish(_ string, messages ...*message.Message) error {
	<-messages[0].Context().Done()
	return messages[0].Context().Err()
}

func (waitingPublisher) Close() error { return nil }

func TestPublisherOfDeadLettersThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.DeadLetters = middleware.DeadLetterConfig{Publisher: waitingPublisher{}, Topic: "dead", Timeout: time.Second}
			c.Hold.Limit = 10 * time.Second
		})
		begun := time.Now()
		_, err := in.Middleware(handle(func(*message.Message) error { return middleware.Permanent(errors.New("no")) }))(newMessage(t.Context(), "a"))
		if err != nil || time.Since(begun) > 15*time.Second || store.row("a").status != stores.StatusFailed {
			t.Errorf("%v after %s\n%s", err, time.Since(begun), store.story())
		}
	})
}

type exitingHook struct{}

func (exitingHook) DeliveryEnd(context.Context, middleware.DeliveryEnd) { runtime.Goexit() }

func TestHookThatExitsAfterAHandlerThatDidNotReturn(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(){"panic": func() { panic("boom") }, "exit": runtime.Goexit, "return": func() {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := newInbox(t, newLedger(), func(c *middleware.InboxConfig) { c.Hooks = append(c.Hooks, exitingHook{}) })
			m := newMessage(t.Context(), "a")
			over := make(chan struct{})
			go func() {
				defer close(over)
				defer func() { _ = recover() }()
				_, _ = in.Middleware(handle(func(*message.Message) error { handler(); return nil }))(m)
			}()
			<-over
			select {
			case <-m.Nacked():
			default:
				t.Error("nobody has settled it")
			}
		})
	}
}

func TestTimesWithoutAnEnd(t *testing.T) {
	t.Parallel()
	_, err := middleware.NewInbox(newLedger(), middleware.InboxConfig{Service: "s", HandlerTimeout: math.MaxInt64})
	if err == nil || !strings.Contains(err.Error(), "HandlerTimeout is 2562047h") || !strings.Contains(err.Error(), "at most 480h") {
		t.Error(err)
	}
}

// scribblingPublisher encrypts what it publishes in place.
type scribblingPublisher struct{}

func (scribblingPublisher) Publish(_ string, messages ...*message.Message) error {
	for i := range messages[0].Payload {
		messages[0].Payload[i] = '#'
	}
	return nil
}

func (scribblingPublisher) Close() error { return nil }

func TestPublisherOfDeadLettersChangesItsCopyAlone(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) {
		c.DeadLetters = middleware.DeadLetterConfig{Publisher: scribblingPublisher{}, Topic: "dead"}
	})
	_, err := in.Middleware(handle(func(*message.Message) error { return middleware.Permanent(errors.New("no")) }))(newMessage(t.Context(), "a"))
	if kept := store.row("a").failure.Content; err != nil || strings.Contains(string(kept.Payload), "#") {
		t.Errorf("%v, kept %q", err, kept.Payload)
	}
}
