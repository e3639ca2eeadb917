// Package batchtest delivers messages at once to an inbox whose handler shares transactions, and
// checks what becomes of them on a store.
package batchtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Handler is the name of the handler.
const Handler = "stock"

const service = "sharing"

// Database is a store, and where its handlers leave their effects.
type Database struct {
	Store   middleware.Store
	Effects func(ctx context.Context) ([]string, error) // ids of messages, one for each committed effect
}

// Inbox is an inbox whose handler shares transactions, and what is seen of it.
type Inbox struct {
	*middleware.Inbox

	database Database

	mu      sync.Mutex
	batches int
	sum     middleware.BatchEnd
	results map[string]middleware.Result // of messages, by the ids of their rows
}

// New returns an inbox with a registered handler.
func New(t *testing.T, on Database, change ...func(*middleware.InboxConfig)) *Inbox {
	t.Helper()
	s := &Inbox{database: on, results: make(map[string]middleware.Result)}
	config := middleware.InboxConfig{
		Service: service, Handler: Handler, Hooks: []middleware.Hook{s}, Logger: slog.New(slog.DiscardHandler),
		HandlerTimeout: 10 * time.Second, CommitTimeout: 10 * time.Second,
		BatchByHandler: map[string]middleware.BatchConfig{Handler: {Time: 5 * time.Second, From: 4}},
	}
	for _, f := range change {
		f(&config)
	}
	in, err := middleware.NewInbox(on.Store, config)
	require.NoError(t, err)
	s.Inbox = in
	require.NoError(t, in.Register(t.Context(), Handler, "orders"))
	return s
}

// BatchEnded implements middleware.BatchHook.
func (s *Inbox) BatchEnded(b middleware.BatchEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	s.sum.Size, s.sum.Kept, s.sum.NotWon = s.sum.Size+b.Size, s.sum.Kept+b.Kept, s.sum.NotWon+b.NotWon
	s.sum.Failed, s.sum.Apart, s.sum.Late = s.sum.Failed+b.Failed, s.sum.Apart+b.Apart, s.sum.Late+b.Late
	if b.Lost != nil {
		s.sum.Lost = b.Lost
	}
}

// DeliveryEnd implements middleware.DeliveryHook.
func (s *Inbox) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[string(d.ID)] = d.Result
}

// Ended returns how many batches have ended, and their sums.
func (s *Inbox) Ended() (batches int, sum middleware.BatchEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches, s.sum
}

// Result returns what became of a message's last delivery.
func (s *Inbox) Result(i int) middleware.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.results["u:"+ID(i)]
}

// ID is the id of a message.
func ID(i int) string { return fmt.Sprintf("m%04d", i) }

// Bad reports whether a message is one of the ten percent whose handlers misbehave.
func Bad(id string) bool { return strings.HasSuffix(id, "3") }

// Deliver delivers messages at the same time, each once, and returns what the inbox has answered.
func (s *Inbox) Deliver(from, to int, handle message.NoPublishHandlerFunc) []error {
	var (
		errs    = make([]error, to-from)
		all     sync.WaitGroup
		deliver = s.delivery(handle)
	)
	for i := range errs {
		all.Go(func() {
			errs[i] = errors.New("exited")
			errs[i] = deliver(ID(from + i))
		})
	}
	all.Wait()
	return errs
}

// delivery returns what delivers a message once, and turns a panic into an error.
func (s *Inbox) delivery(handle message.NoPublishHandlerFunc) func(id string) error {
	wrap := s.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) })
	return func(id string) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("%v", r)
			}
		}()
		_, err = wrap(message.NewMessage(id, nil))
		return err
	}
}

// delivered returns how many messages' deliveries have ended.
func (s *Inbox) delivered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.results)
}

// Once checks that each of the first n messages is completed and has its effect exactly once, but
// for those that are left, which have none.
func (s *Inbox) Once(t *testing.T, n int, left func(i int) bool) {
	t.Helper()
	ids, err := s.database.Effects(t.Context())
	require.NoError(t, err)
	counts := make(map[string]int)
	for _, id := range ids {
		counts[id]++
	}
	for i := range n {
		want := 1
		if left(i) {
			want = 0
		}
		if counts[ID(i)] != want {
			t.Errorf("%s has %d effects, want %d", ID(i), counts[ID(i)], want)
		}
		v, err := s.database.Store.Look(t.Context(), stores.Key{Consumer: stores.Consumer{Service: service, Handler: Handler}, ID: []byte("u:" + ID(i))}, stores.Fingerprint{})
		require.NoError(t, err)
		if (v.Outcome == stores.Duplicate) != (want == 1) {
			t.Errorf("%s is %s", ID(i), v.Outcome)
		}
	}
}

// None is left.
func None(int) bool { return false }

// Crowded returns what handlers call first. They go on when n have begun, or soon after the first one,
// so that messages are in flight which can share.
func Crowded(n int) (wait func()) {
	var (
		arrived atomic.Int32
		once    sync.Once
		all     = make(chan struct{})
		open    = func() { once.Do(func() { close(all) }) }
	)
	return func() {
		switch arrived.Add(1) {
		case int32(n): //nolint:gosec // it is small
			open()
		case 1:
			time.AfterFunc(300*time.Millisecond, open)
		}
		<-all
	}
}
