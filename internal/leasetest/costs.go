// Package leasetest counts what messages under a lease cost on a store.
package leasetest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Cost is what a store has asked of its database.
type Cost struct{ Trips, Commits int }

func (c Cost) less(other Cost) Cost { return Cost{c.Trips - other.Trips, c.Commits - other.Commits} }

// Costs are those of the messages of a handler under a lease, all but Duplicate without what
// its write costs.
type Costs struct {
	First     Cost // a first delivery
	Renewal   Cost // of its lease, more than that
	Step      Cost // of its handler, more than that
	Duplicate Cost // of a message that is completed
}

// Store is a store with its database.
type Store struct {
	middleware.Store
	Consumer stores.Consumer
	Write    func(ctx context.Context) error // in the transaction of the completion, in one trip
	Cost     func(f func()) Cost             // what f costs
}

// mostFrequent returns the smallest of the most frequent costs.
func mostFrequent(seen map[Cost]int) Cost {
	return slices.MaxFunc(slices.Collect(maps.Keys(seen)), func(a, b Cost) int {
		return cmp.Or(cmp.Compare(seen[a], seen[b]), cmp.Compare(b.Trips, a.Trips), cmp.Compare(b.Commits, a.Commits))
	})
}

// Measure returns what messages cost when connections are open and statements are prepared.
func Measure(t *testing.T, s Store) (c Costs) {
	t.Helper()
	const ttl = 1500 * time.Millisecond
	var effect time.Duration
	steps := 0
	in, err := middleware.NewInbox(s.Store, middleware.InboxConfig{
		Service: s.Consumer.Service, Handler: s.Consumer.Handler, CacheSize: -1, Logger: slog.New(slog.DiscardHandler),
		LeaseByHandler: map[string]middleware.LeaseConfig{s.Consumer.Handler: {TTL: ttl}},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := in.Middleware(func(m *message.Message) ([]*message.Message, error) {
		if effect > 0 {
			<-time.After(effect)
		}
		var failed error
		for range steps {
			_, err := middleware.Once(m.Context(), "step", func(context.Context) (int, error) { return 1, nil })
			failed = errors.Join(failed, err)
		}
		return nil, errors.Join(failed, middleware.OnComplete(m.Context(), s.Write))
	})
	deliver := func(id string) Cost {
		seen := make(map[Cost]int)
		for range 6 { // those at first prepare, and a busy machine may count late or let a renewal begin late
			m := message.NewMessage(id, []byte("payload"))
			if id == "" {
				m.UUID = rand.Text()
			}
			m.SetContext(t.Context())
			cost := s.Cost(func() {
				if _, err := handler(m); err != nil {
					t.Fatal(err)
				}
			})
			seen[cost]++
		}
		return mostFrequent(seen)
	}
	c.First, c.Duplicate = deliver(""), deliver("seen")
	steps = 1
	c.Step = deliver("").less(c.First)
	steps, effect = 0, ttl/2 // one renewal
	c.Renewal = deliver("").less(c.First)
	c.First.Trips-- // the write
	return c
}
