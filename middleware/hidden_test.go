package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// hidden is an attempt whose store knows of a failure that somebody has hidden.
type hidden struct {
	scriptedAttempt

	failure     error
	interrupted error
}

func (h *hidden) Commit(context.Context) error {
	return fmt.Errorf("%w: %w: %w", stores.ErrNotCommitted, stores.ErrFailureHidden, h.failure)
}

func (h *hidden) Interrupted() error { return h.interrupted }

func TestHiddenFailureIsMisconductUnlessTheDatabaseInterrupted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		failure, interrupted error
		class                stores.Class
		runs                 int
	}{
		"an error":              {failure: errors.New("boom"), class: stores.ClassConduct, runs: 1},
		"a deadline":            {failure: context.DeadlineExceeded, class: stores.ClassConduct, runs: 1},
		"as permanent":          {failure: middleware.Permanent(errors.New("boom")), class: stores.ClassPermanent, runs: 1},
		"the database's":        {failure: errors.New("deadlock"), interrupted: errors.New("deadlock"), runs: 2},
		"the database's, known": {failure: middleware.Permanent(errors.New("boom")), interrupted: errors.New("deadlock"), class: stores.ClassPermanent, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, ends := &scriptedStore{begin: func(n int, _ stores.Claim) (stores.Attempt, stores.Verdict, error) {
					if n == 1 {
						return &hidden{failure: test.failure, interrupted: test.interrupted}, stores.Verdict{Outcome: stores.Claimed}, nil
					}
					return &scriptedAttempt{}, stores.Verdict{Outcome: stores.Claimed}, nil
				}}, &ends{}
				_, err := newInbox(t, store, ends.configure).Middleware(handle(succeed))(newMessage(t.Context(), "a"))
				if end := ends.last(); err != nil || end.Class != test.class || end.Runs != test.runs {
					t.Errorf("%v, %+v", err, end)
				}
			})
		})
	}
}
