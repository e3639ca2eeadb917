package middleware_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// scriptedStore answers as a test tells it to, for what is about time and order and
// not about a database; the promises themselves are tested on real stores.
type scriptedStore struct {
	mu          sync.Mutex
	begin       func(n int, c stores.Claim) (stores.Attempt, stores.Verdict, error) // n counts from 1
	begun       int
	claims      []stores.Claim
	resolve     func() (bool, error)
	register    func(stores.Registration) error
	quarantine  func() error
	quarantined []stores.Quarantined

	look     func() (stores.Verdict, error)
	looked   int
	record   func(n int, f stores.Failure) error // n counts from 1
	tried    int
	recorded []stores.Failure
}

func (s *scriptedStore) Begin(_ context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	c.Key.ID = slices.Clone(c.Key.ID)
	s.claims = append(s.claims, c)
	if s.begin == nil {
		return &scriptedAttempt{}, stores.Verdict{Outcome: stores.Claimed}, nil
	}
	return s.begin(s.begun, c)
}

func (s *scriptedStore) Register(_ context.Context, r stores.Registration) error {
	if s.register == nil {
		return nil
	}
	return s.register(r)
}

func (s *scriptedStore) Quarantine(_ context.Context, q stores.Quarantined) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quarantine != nil {
		if err := s.quarantine(); err != nil {
			return err
		}
	}
	s.quarantined = append(s.quarantined, q)
	return nil
}

func (s *scriptedStore) Look(context.Context, stores.Key, stores.Fingerprint) (stores.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked++
	if s.look == nil {
		return stores.Verdict{Outcome: stores.Claimable}, nil
	}
	return s.look()
}

// Record keeps f. The versions that it returns are 1, 2, 3 and so on.
func (s *scriptedStore) Record(_ context.Context, f stores.Failure) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried++
	if s.record != nil {
		if err := s.record(s.tried, f); err != nil {
			return 0, err
		}
	}
	f.Key.ID = slices.Clone(f.Key.ID)
	s.recorded = append(s.recorded, f)
	return int64(len(s.recorded)), nil
}

func (s *scriptedStore) KeepContent(context.Context, stores.Key, int64, stores.Content) error {
	return stores.ErrChanged
}

func (s *scriptedStore) Resolve(context.Context, stores.Key) (bool, error) { return s.resolve() }

func (s *scriptedStore) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

type scriptedAttempt struct {
	commit     error
	committed  bool
	rolledBack bool
}

type scriptedTx struct{}

func (a *scriptedAttempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, scriptedTx{}, a)
}

func (a *scriptedAttempt) Commit(context.Context) error {
	a.committed = a.commit == nil
	return a.commit
}

func (a *scriptedAttempt) Rollback(context.Context) error {
	a.rolledBack = true
	return nil
}

func newInbox(tb testing.TB, s middleware.Store, configure ...func(*middleware.InboxConfig)) *middleware.Inbox {
	tb.Helper()
	c := middleware.InboxConfig{Service: "inventory", Handler: "stock", Logger: slog.New(slog.DiscardHandler)}
	for _, f := range configure {
		f(&c)
	}
	in, err := middleware.NewInbox(s, c)
	if err != nil {
		tb.Fatal(err)
	}
	return in
}

func handle(f func(*message.Message) error) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) { return nil, f(m) }
}

// newMessage is a first delivery, unless ctx says something else about it.
func newMessage(ctx context.Context, uuid string) *message.Message {
	a, known := ctx.Value(arrivalKey{}).(*arrival)
	if !known {
		a = &arrival{facts: brokers.Delivery{Count: 1}}
	}
	m := message.NewMessage(uuid, []byte("payload of "+uuid))
	ctx = brokers.WithDelivery(ctx, m, a.facts)
	a.last.Store(&ctx)
	m.SetContext(ctx)
	return m
}

type arrivalKey struct{}

// arrival is what newMessage lets its context say about the messages.
type arrival struct {
	facts brokers.Delivery
	last  atomic.Pointer[context.Context] // as handed out
}

func withDelivery(ctx context.Context, facts brokers.Delivery) context.Context {
	return context.WithValue(ctx, arrivalKey{}, &arrival{facts: facts})
}

// givenBack reads what a subscriber would, of the last message that has come with ctx.
func givenBack(ctx context.Context) brokers.GiveBack {
	a, _ := ctx.Value(arrivalKey{}).(*arrival)
	return brokers.GiveBackFrom(*a.last.Load())
}

// redelivered leaves failed messages to the broker.
func redelivered(c *middleware.InboxConfig) { c.Retry.Placement = stores.PlacementRedelivered }
