package middleware_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

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

func newMessage(ctx context.Context, uuid string) *message.Message {
	m := message.NewMessage(uuid, []byte("payload of "+uuid))
	m.SetContext(ctx)
	return m
}
