package crash

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Variants that do something wrong with failures. Each is how a store or a program may
// get it wrong, around the store that gets it right.

// forgetful loses the count with the handler's rollback.
type forgetful struct{ stores.Store }

func (s forgetful) Record(ctx context.Context, f stores.Failure) (int64, error) {
	f.Attempts = 0
	return s.Store.Record(ctx, f)
}

// overCompleted records a failure whatever has become of the message meanwhile. It takes
// its time, so that another delivery can complete it.
type overCompleted struct {
	stores.Store
	b *backend
}

func (s overCompleted) Record(ctx context.Context, f stores.Failure) (int64, error) {
	pause.Sleep(ctx, 200*time.Millisecond)
	version, err := s.Store.Record(ctx, f)
	if !errors.Is(err, stores.ErrChanged) || f.Content == nil {
		return version, err
	}
	_, err = s.b.db.ExecContext(ctx, s.b.dialect.placeholder("DELETE FROM millpond_inbox WHERE message_id = $1 AND consumer = "+consumerID+" AND status = 2"),
		f.Key.ID, f.Key.Consumer.Handler)
	if err != nil {
		return 0, errors.Join(stores.ErrUnavailable, err)
	}
	f.Version = 0
	return s.Store.Record(ctx, f)
}

// localClock writes down by the local clock when a message is due. That of the workers
// are days apart.
type localClock struct {
	stores.Store
	worker int
}

func (s localClock) Record(ctx context.Context, f stores.Failure) (int64, error) {
	const day = 24 * time.Hour
	f.DueIn = max(0, f.DueIn+time.Duration(s.worker-1)*day)
	return s.Store.Record(ctx, f)
}

// TestQuickNacksAreFound: deliveries that are given back at once while the store is
// down are soon spent.
func TestQuickNacksAreFound(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, fragile(t)), func(t *testing.T, open opener) {
		for range storeDownTries {
			tr := storeDownTrial(t, open, "quick nacks")
			tr.limit = outage(t) + brokenLimit
			r := tr.run(t)
			t.Logf("%s\nfound %v, %d dropped by the broker", r.summary(), r.invariants(), r.Dropped)
			if slices.Contains(r.invariants(), "I2") {
				return
			}
		}
		t.Error("deliveries were given back at once and nothing was lost, or nobody noticed")
	})
}

func quickNacks(c *middleware.InboxConfig) { c.Hold.Limit = time.Millisecond }
