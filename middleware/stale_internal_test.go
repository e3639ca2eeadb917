package middleware

import (
	"context"
	"testing"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// silentPurger is a store whose answer does not come before its release.
type silentPurger struct {
	stores.Purger

	asked, release chan struct{}
}

func (p silentPurger) Watermarks(context.Context) (stores.Watermarks, error) {
	p.asked <- struct{}{}
	<-p.release
	return stores.Watermarks{}, context.DeadlineExceeded
}

// limited tells when a context with a deadline is made of it.
type limited struct {
	context.Context //nolint:containedctx // it is one

	made chan struct{}
}

func (c limited) Deadline() (time.Time, bool) {
	close(c.made)
	return time.Time{}, false
}

// While the store does not answer, deliveries wait for the watermark together: the time of each
// begins when it asks, not when the one before has given up.
func TestTheWaitForTheWatermarkIsBounded(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*ages, context.Context) error{
		"looks": func(a *ages, ctx context.Context) error {
			_, err := a.forgotten(ctx, time.Now().Add(-time.Hour), time.Hour)
			return err
		},
		"is stale": func(a *ages, ctx context.Context) error {
			return a.admits(ctx, &InboxConfig{ClaimTimeout: time.Hour})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := silentPurger{asked: make(chan struct{}), release: make(chan struct{})}
			a := &ages{store: store, flood: true}
			first := make(chan error, 1)
			go func() { first <- ask(a, t.Context()) }()
			<-store.asked
			second, made := make(chan error, 1), make(chan struct{})
			go func() { second <- ask(a, limited{t.Context(), made}) }()
			select {
			case <-made:
			case <-time.After(10 * time.Second):
				t.Error("the time of the second delivery has not begun while the first one waits")
			}
			close(store.release)
			<-store.asked
			if err := <-first; err == nil {
				t.Error("the first one got an answer")
			}
			if err := <-second; err == nil {
				t.Error("the second one got an answer")
			}
		})
	}
}
