package middleware_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// instantStore claims at once and keeps nothing, so that what is left is the inbox.
type instantStore struct{}

func (instantStore) KeepContent(context.Context, stores.Key, int64, stores.Content) error { return nil }

func (instantStore) Begin(context.Context, stores.Claim) (stores.Attempt, stores.Verdict, error) {
	return instantAttempt{}, stores.Verdict{Outcome: stores.Claimed}, nil
}

func (instantStore) Register(context.Context, stores.Registration) error { return nil }

func (instantStore) Quarantine(context.Context, stores.Quarantined) error { return nil }

func (instantStore) Look(context.Context, stores.Key, stores.Fingerprint) (stores.Verdict, error) {
	return stores.Verdict{Outcome: stores.Claimable}, nil
}

func (instantStore) Record(context.Context, stores.Failure) (int64, error) { return 1, nil }

type instantAttempt struct{}

func (instantAttempt) Context(parent context.Context) context.Context { return parent }
func (instantAttempt) Commit(context.Context) error                   { return nil }
func (instantAttempt) Rollback(context.Context) error                 { return nil }

// A first delivery that the cache keeps makes one allocation more. Under the race detector pools
// forget some of what they are given, so that a delivery makes up to one more on average.
func TestAllocationsOfADelivery(t *testing.T) {
	const runs = 1000
	for name, c := range map[string]struct {
		cacheSize int
		most      float64
	}{
		"first":     {-1, 11},
		"duplicate": {0, 3},
	} {
		handler := newInbox(t, instantStore{}, func(config *middleware.InboxConfig) { config.CacheSize = c.cacheSize }).
			Middleware(handle(func(*message.Message) error { return nil }))
		m := newMessage(t.Context(), "0195a3c4-6f1e-7b2a-9c3d-000000000001")
		n := testing.AllocsPerRun(runs, func() {
			if _, err := handler(m); err != nil {
				t.Fatal(err)
			}
		})
		if n > c.most {
			t.Errorf("%s: %v allocations, want at most %v", name, n, c.most)
		}
	}
}

// BenchmarkInbox is what the inbox adds to a message beside the store's work: at
// most 5 µs and 11 allocations are wanted for a first delivery of 1 kB.
func BenchmarkInbox(b *testing.B) {
	const cacheSize = 10_000 // the default
	for _, bench := range []struct {
		name     string
		messages int // more than the cache holds: each is forgotten before it comes again
	}{
		{"first sight", 2 * cacheSize},
		{"duplicate", cacheSize / 10},
	} {
		messages := make([]*message.Message, bench.messages)
		for i := range messages {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			messages[i] = message.NewMessage(fmt.Sprintf("0195a3c4-6f1e-7b2a-9c3d-%012d", i), make([]byte, 1000))
			messages[i].Metadata = message.Metadata{"content_type": "application/json", "correlation_id": messages[i].UUID}
			messages[i].SetContext(brokers.WithDelivery(ctx, messages[i], brokers.Delivery{Topic: "orders", Count: 1}))
		}
		b.Run(bench.name, func(b *testing.B) {
			handler := newInbox(b, instantStore{}).Middleware(handle(func(*message.Message) error { return nil }))
			for _, m := range messages {
				if _, err := handler(m); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := handler(messages[i]); err != nil {
					b.Fatal(err)
				}
				if i++; i == len(messages) {
					i = 0
				}
			}
		})
	}
}
