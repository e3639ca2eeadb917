package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// What another message's handler asks its context for is not this handler's doing, although
// the context is this run's further in.
func TestQuestionOfAnotherMessageFailsItsOwnAttempt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ own, other bool }{ // who asks
		"the other": {other: true},
		"both":      {own: true, other: true},
		"this one":  {own: true},
		"nobody":    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, others := &ends{}, &ends{}
			outer, inner := newInbox(t, storeOf(&scriptedAttempt{}), own.configure), newInbox(t, storeOf(&otherAttempt{}), others.configure)
			ask := func(ctx context.Context) {
				if tx := ctx.Value(theirs("tx")); tx != nil {
					t.Errorf("a handler is given %v", tx)
				}
			}
			_, err := outer.Middleware(handle(func(m *message.Message) error {
				b := message.NewMessageWithContext(context.WithValue(m.Context(), otherContext{}, "above"), "b", nil)
				_, err := inner.Middleware(handle(func(m *message.Message) error {
					if test.other {
						ask(m.Context())
					}
					c := message.NewMessageWithContext(m.Context(), "c", nil) // and one that asks for nothing of its own
					_, err := outer.Middleware(handle(func(m *message.Message) error {
						if m.Context().Value(otherContext{}) != "above" {
							t.Error("the context has lost its values")
						}
						return nil
					}))(c)
					return err
				}))(b)
				if test.own {
					ask(m.Context())
				}
				return err
			}))(newMessage(context.WithValue(t.Context(), theirs("tx"), &sql.Tx{}), "a"))
			if err != nil {
				t.Fatal(err)
			}
			for who, one := range map[string]struct {
				ends  *ends
				asked bool
			}{"this one": {own, test.own}, "the other": {others, test.other}} {
				end := one.ends.last()
				if failed := end.Class == stores.ClassConduct; failed != one.asked || errors.Is(end.Err, middleware.ErrForeignTx) != one.asked {
					t.Errorf("%s: %+v", who, end)
				}
			}
		})
	}
}
