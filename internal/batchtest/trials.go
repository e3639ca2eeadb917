package batchtest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/dbproxy"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Opener opens an inbox on a database of its own.
type Opener func(t *testing.T, change ...func(*middleware.InboxConfig)) *Inbox

// Act is what a handler does to its transaction.
type Act struct {
	Handler message.NoPublishHandlerFunc // writes each message's effect, and misbehaves for those that are [Bad]
	Seen    func(sum middleware.BatchEnd) bool
	Runs    bool // it completes
	Ends    bool // what it committed before its end stays, and it goes to quarantine
}

// Dishonest checks that whatever a handler does to its transaction happens to its message alone.
func Dishonest(t *testing.T, open Opener, acts map[string]Act) {
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, most = 40, 5
			s := open(t, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 1 })
			delivered, seen := 0, false
			for ; !seen && delivered < most*n; delivered += n { // who misbehaves may have been alone
				wait := Crowded(8)
				for i, err := range s.Deliver(delivered, delivered+n, func(msg *message.Message) error {
					wait()
					return act.Handler(msg)
				}) {
					if !Bad(ID(i)) || act.Runs {
						require.NoError(t, err)
					}
				}
				_, sum := s.Ended()
				seen = act.Seen(sum)
			}
			s.Once(t, delivered, func(i int) bool { return Bad(ID(i)) && !act.Runs && !act.Ends })
			for i := range delivered {
				if got := s.Result(i); Bad(ID(i)) && act.Ends && got != middleware.ResultQuarantined {
					t.Errorf("%s is %s", ID(i), got)
				}
			}
			batches, sum := s.Ended()
			t.Logf("%d messages, %d batches: %+v", delivered, batches, sum)
			require.True(t, seen, "nothing is seen of it in batches")
		})
	}
}

// HotRows is how many rows handlers meet on.
const HotRows = 100

// Meeting is a table with HotRows rows, the number 0 in each.
type Meeting struct {
	Handler  func(row func() int) message.NoPublishHandlerFunc // adds 1 to two rows, and writes the effect
	Deadlock func(err error) bool
	Sum      func() (int, error) // of the numbers in all rows
}

// SharesEarly lets messages share as soon as two are in flight.
func SharesEarly(c *middleware.InboxConfig) {
	c.BatchByHandler[Handler] = middleware.BatchConfig{From: 2, Time: 5 * time.Second}
}

// Redelivers lets each message that fails come again at once, and share early.
func Redelivers(c *middleware.InboxConfig) {
	SharesEarly(c)
	c.CacheSize, c.Hold.MaxPause = -1, 50*time.Millisecond
	c.Retry = middleware.RetryPolicy{
		MaxAttempts: 1000, Placement: stores.PlacementRedelivered,
		Backoff: middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond},
	}
}

// Deadlocks checks that batches which meet on the same rows come to an end, with each message's
// effects once. The inbox [Redelivers].
func Deadlocks(t *testing.T, s *Inbox, m Meeting) {
	t.Helper()
	const n, most = 200, 20
	var deadlocks atomic.Int32
	handle := m.Handler(func() int { return rand.IntN(HotRows) }) //nolint:gosec // any rows do
	noticing := func(msg *message.Message) error {
		err := handle(msg)
		if err != nil && m.Deadlock(err) {
			deadlocks.Add(1)
		}
		return err
	}
	delivered := 0
	for round := 0; deadlocks.Load() == 0 && round < most; round++ { // few batches may not meet
		s.untilAcked(t, delivered, delivered+n, noticing)
		delivered += n
	}
	s.Once(t, delivered, None)
	sum, err := m.Sum()
	require.NoError(t, err)
	require.Equal(t, 2*delivered, sum)
	batches, all := s.Ended()
	t.Logf("%d deadlocks; %d batches: %+v", deadlocks.Load(), batches, all)
	require.Positive(t, deadlocks.Load())
	require.Positive(t, all.Kept)
}

// untilAcked delivers messages at the same time, each until it is acked.
func (s *Inbox) untilAcked(t *testing.T, from, to int, handle message.NoPublishHandlerFunc) {
	const most = 500
	deliver := s.delivery(handle)
	var all sync.WaitGroup
	for i := from; i < to; i++ {
		all.Go(func() {
			var err error
			for range most {
				if err = deliver(ID(i)); err == nil {
					return
				}
			}
			t.Errorf("%s is not acked after %d deliveries: %v", ID(i), most, err)
		})
	}
	all.Wait()
}

// Network is what connections to a database go through.
type Network interface {
	SetRandomFaults(f dbproxy.RandomFaults)
	CutAll()
}

var errRefused = errors.New("refused")

// LostConnections loses requests of COMMIT and their replies, and connections in the middle of
// batches, while handlers fail and each message comes twice. The inbox [Redelivers].
func LostConnections(t *testing.T, s *Inbox, way Network, handle message.NoPublishHandlerFunc) {
	t.Helper()
	way.SetRandomFaults(dbproxy.RandomFaults{Seed: 1, LoseCommitReply: 0.1, LoseCommitRequest: 0.1})
	var runs atomic.Int32
	failing := func(msg *message.Message) error {
		n := runs.Add(1)
		if n%70 == 0 {
			way.CutAll()
		}
		if err := handle(msg); err != nil || n%11 != 0 {
			return err
		}
		return errRefused
	}
	const n = 150
	var twins sync.WaitGroup
	for range 2 {
		twins.Go(func() { s.untilAcked(t, 0, n, failing) })
	}
	twins.Wait()
	way.SetRandomFaults(dbproxy.RandomFaults{})
	s.Once(t, n, None)
	batches, sum := s.Ended()
	require.Error(t, sum.Lost)
	require.Positive(t, sum.Kept)
	t.Logf("%d runs, %d batches: %+v", runs.Load(), batches, sum)
}

// Hangs checks that a handler which does not return keeps the others for no longer than its own
// time. The handler calls hang with the name of its transaction before it writes its effect.
func Hangs(t *testing.T, open Opener, handler func(hang func(transaction string)) message.NoPublishHandlerFunc) {
	t.Helper()
	s := open(t, func(c *middleware.InboxConfig) {
		c.HandlerTimeout, c.CommitTimeout = time.Second, time.Second
		c.BatchByHandler[Handler] = middleware.BatchConfig{Time: 600 * time.Millisecond, From: 4}
		c.Retry.MaxAttempts = 1
	})
	const n = 40
	var (
		release = make(chan struct{})
		seen    sync.Map // transactions in which a handler has run
		hung    atomic.Bool
		wait    = Crowded(8)
	)
	handle := handler(func(transaction string) {
		if _, again := seen.LoadOrStore(transaction, true); again && hung.CompareAndSwap(false, true) {
			<-release
		}
	})
	var others sync.WaitGroup
	others.Go(func() {
		defer close(release)
		assert.Eventually(t, func() bool { return s.delivered() >= n-1 }, time.Minute, 10*time.Millisecond, "the others wait for the handler that hangs")
	})
	s.Deliver(0, n, func(msg *message.Message) error {
		wait()
		return handle(msg)
	})
	others.Wait()
	s.Once(t, n, None) // its failure is that of a connection which others had
	_, sum := s.Ended()
	require.ErrorIs(t, sum.Lost, stores.ErrBatchLost)
}
