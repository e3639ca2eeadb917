package middleware_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// pgxLike is a transaction as pgx has them.
type pgxLike struct{}

func (*pgxLike) Commit(context.Context) error   { return nil }
func (*pgxLike) Rollback(context.Context) error { return nil }

type theirs string // as watermill-sql's key

// A handler never gets at a transaction that is not the attempt's.
func TestTransactionsOfOthersAreHiddenAndDoomTheAttempt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value any
		ask   bool
		given bool
		class stores.Class // "": completed
	}{
		"database/sql":       {value: &sql.Tx{}, ask: true, class: stores.ClassConduct},
		"pgx":                {value: &pgxLike{}, ask: true, class: stores.ClassConduct},
		"not asked for":      {value: &sql.Tx{}},
		"none there":         {ask: true},
		"taken away, as nil": {value: (*sql.Tx)(nil), ask: true, given: true},
		"something else":     {value: &sql.DB{}, ask: true, given: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempt := &scriptedAttempt{}
			m := newMessage(context.WithValue(t.Context(), theirs("tx"), test.value), "a")
			ends := &ends{}
			_, err := newInbox(t, storeOf(attempt), ends.configure).Middleware(handle(func(m *message.Message) error {
				if _, open := m.Context().Value(scriptedTx{}).(*scriptedAttempt); !open {
					t.Error("the attempt is not to be found")
				}
				if test.ask && (m.Context().Value(theirs("tx")) != nil) != test.given {
					t.Errorf("the handler is given %v", m.Context().Value(theirs("tx")))
				}
				return nil
			}))(m)
			if err != nil || ends.last().Class != test.class || attempt.committed != (test.class == "") || attempt.rolledBack == attempt.committed {
				t.Fatalf("%v, %+v, %+v", err, ends.last(), attempt)
			}
			if asked, ok := errors.AsType[*middleware.ForeignTxError](ends.last().Err); test.class != "" &&
				(!ok || !errors.Is(asked, middleware.ErrForeignTx) || asked.Key != "middleware_test.theirs" ||
					!strings.Contains(asked.Error(), "use TxFromContext of the inbox's store, a *middleware_test.scriptedStore")) {
				t.Errorf("the error is %v", ends.last().Err)
			}
			if m.Context().Value(theirs("tx")) != test.value {
				t.Error("the message has lost its context")
			}
		})
	}
}

// otherAttempt is one of another store, which has a key of its own.
type otherAttempt struct{ scriptedAttempt }

type otherTx struct{}

func (a *otherAttempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, otherTx{}, a)
}

// An attempt is its own message's: one that comes with the context of another message
// finds its own only, two inboxes around one handler give it both.
func TestAttemptIsNotInheritedByAnotherMessage(t *testing.T) {
	t.Parallel()
	for name, published := range map[string]bool{"published": true, "two inboxes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := newInbox(t, storeOf(&scriptedAttempt{}))
			inner := newInbox(t, storeOf(&otherAttempt{}))
			runs := 0
			_, err := outer.Middleware(handle(func(m *message.Message) error {
				if published {
					m = message.NewMessageWithContext(m.Context(), "b", nil)
				}
				_, err := inner.Middleware(handle(func(m *message.Message) error {
					runs++
					if m.Context().Value(otherTx{}) == nil || (m.Context().Value(scriptedTx{}) == nil) != published {
						t.Errorf("own: %v, the other's: %v", m.Context().Value(otherTx{}), m.Context().Value(scriptedTx{}))
					}
					if _, limited := m.Context().Deadline(); !limited {
						t.Error("the run has no deadline")
					}
					return nil
				}))(m)
				return err
			}))(newMessage(t.Context(), "a"))
			if err != nil || runs != 1 {
				t.Errorf("%v, %d runs", err, runs)
			}
		})
	}
}

type otherContext struct{}

// Nor does its message end with the other's run.
func TestMessageDoesNotEndWithTheRunItWasPublishedIn(t *testing.T) {
	t.Parallel()
	var published *message.Message
	in := newInbox(t, newLedger())
	_, err := in.Middleware(handle(func(m *message.Message) error {
		published = message.NewMessageWithContext(context.WithValue(m.Context(), otherContext{}, "kept"), "b", nil)
		return nil
	}))(newMessage(t.Context(), "a"))
	if err != nil || published.Context().Err() == nil {
		t.Fatal(err, published.Context().Err())
	}
	ends := &ends{}
	_, err = newInbox(t, newLedger(), ends.configure).Middleware(handle(func(m *message.Message) error {
		if m.Context().Value(otherContext{}) != "kept" {
			t.Error("the context has lost its values")
		}
		return context.Canceled // not because the service stops
	}))(published)
	if err != nil || ends.last().Result != middleware.ResultParked {
		t.Errorf("%v, %+v", err, ends.last())
	}
}

// named is a subscriber that Watermill's router calls as watermill-sql's.
type named struct{ message.Subscriber }

func (named) String() string { return "sql.Subscriber" }

func TestSubscriberWithATransactionIsWarnedOfOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	pubsub, ended := newPreserving(), newResults()
	in := newInbox(t, newLedger(), func(c *middleware.InboxConfig) {
		c.Handler, c.Logger, c.Hooks = "", slog.New(slog.NewTextHandler(&out, nil)), []middleware.Hook{ended}
	})
	route(t, named{pubsub}, map[string]message.NoPublishHandlerFunc{"orders": succeed}, map[string]*middleware.Inbox{"orders": in})
	for _, id := range []string{"a", "b"} {
		if err := pubsub.Publish("orders", message.NewMessage(id, nil)); err != nil {
			t.Fatal(err)
		}
		ended.next(t)
	}
	if n := strings.Count(out.String(), "watermill-sql.md"); n != 1 {
		t.Errorf("%d warnings in %s", n, out.String())
	}
}
