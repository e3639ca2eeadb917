package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// sharing is an inbox whose handler shares transactions, and what is seen of it.
type sharing struct {
	*middleware.Inbox

	store *postgres.Store

	mu      sync.Mutex
	batches []middleware.BatchEnd
	results map[string]middleware.Result // of messages, by their ids
}

func (s *sharing) BatchEnded(b middleware.BatchEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = append(s.batches, b)
}

func (s *sharing) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[string(d.ID)] = d.Result
}

func (s *sharing) result(id string) middleware.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.results["u:"+id]
}

func newSharing(t *testing.T, change ...func(*middleware.InboxConfig)) *sharing {
	t.Helper()
	return newSharingOn(t, openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "30")), change...)
}

func newSharingOn(t *testing.T, store *postgres.Store, change ...func(*middleware.InboxConfig)) *sharing {
	t.Helper()
	s := &sharing{store: store, results: make(map[string]middleware.Result)}
	config := middleware.InboxConfig{
		Service: "sharing", Handler: "stock", Hooks: []middleware.Hook{s},
		HandlerTimeout: 5 * time.Second, CommitTimeout: 5 * time.Second,
		BatchByHandler: map[string]middleware.BatchConfig{"stock": {Time: time.Second, From: 4}},
	}
	for _, f := range change {
		f(&config)
	}
	in, err := middleware.NewInbox(s.store, config)
	require.NoError(t, err)
	s.Inbox = in
	require.NoError(t, in.Register(t.Context(), "stock", "orders"))
	return s
}

// deliver delivers messages at the same time, each once, and returns what the inbox has
// answered. All are in flight before the first handler goes on.
func (s *sharing) deliver(t *testing.T, n int, handle message.NoPublishHandlerFunc) []error {
	t.Helper()
	var (
		errs = make([]error, n)
		all  sync.WaitGroup
		wrap = s.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) })
	)
	for i := range n {
		all.Go(func() {
			exited := true
			defer func() {
				if r := recover(); r != nil {
					errs[i] = fmt.Errorf("%v", r)
				} else if exited {
					errs[i] = errors.New("exited")
				}
			}()
			_, errs[i] = wrap(message.NewMessage(fmt.Sprintf("m%03d", i), nil))
			exited = false
		})
	}
	all.Wait()
	return errs
}

func (s *sharing) ended() (all []middleware.BatchEnd, sum middleware.BatchEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.batches {
		sum.Size, sum.Kept, sum.Failed, sum.Apart, sum.Late = sum.Size+b.Size, sum.Kept+b.Kept, sum.Failed+b.Failed, sum.Apart+b.Apart, sum.Late+b.Late
		sum.NotWon += b.NotWon
		if b.Lost != nil {
			sum.Lost = b.Lost
		}
	}
	return s.batches, sum
}

// once checks that each message has its effect exactly once, unless it is among others.
func (s *sharing) once(t *testing.T, n int, others ...string) {
	t.Helper()
	counts := make(map[string]int)
	for _, key := range committedKeys(t, s.store) {
		counts[key]++
	}
	for i := range n {
		want := 1
		for _, other := range others {
			if other == fmt.Sprintf("m%03d", i) {
				want = 0
			}
		}
		id := fmt.Sprintf("m%03d", i)
		if counts[id] != want {
			t.Errorf("%s has %d effects, want %d", id, counts[id], want)
		}
		v, err := s.store.Look(t.Context(), stores.Key{Consumer: stores.Consumer{Service: "sharing", Handler: "stock"}, ID: []byte("u:" + id)}, stores.Fingerprint{})
		require.NoError(t, err)
		if (v.Outcome == stores.Duplicate) != (want == 1) {
			t.Errorf("%s is %s", id, v.Outcome)
		}
	}
}

func effect(msg *message.Message, tx pgx.Tx) error {
	_, err := tx.Exec(msg.Context(), insertEffect, msg.UUID)
	return err
}

// crowded lets handlers begin when as many messages are in flight, so that they share.
func crowded(n int) func() {
	var arrived atomic.Int32
	all := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() { close(all) })
	return func() {
		if int(arrived.Add(1)) <= n {
			<-all
		}
	}
}

const many = 100

func TestMessagesInFlightShareTransactions(t *testing.T) {
	t.Parallel()
	s := newSharing(t)
	wait := crowded(8)
	for _, err := range s.deliver(t, many, postgres.Handler(func(_ context.Context, tx pgx.Tx, msg *message.Message) error {
		wait()
		return effect(msg, tx)
	})) {
		require.NoError(t, err)
	}
	s.once(t, many)
	batches, sum := s.ended()
	require.NoError(t, sum.Lost)
	require.Greater(t, sum.Kept, many/2)
	require.Less(t, len(batches), many/4)
	require.Equal(t, middleware.ResultCompleted, s.result("m017"))
}

var errRefused = errors.New("refused")

// Whatever a handler does to its transaction happens to its message alone.
func TestDishonestHandlersInBatches(t *testing.T) {
	t.Parallel()
	bad := func(msg *message.Message) bool { return msg.UUID[3] == '3' } // one of ten
	for name, test := range map[string]struct {
		act  func(ctx context.Context, tx pgx.Tx) error
		runs bool // and completes, in a transaction of its own
		ends bool // it has committed that before its end, and goes to quarantine
	}{
		"fails":       {act: func(context.Context, pgx.Tx) error { return errRefused }},
		"panics":      {act: func(context.Context, pgx.Tx) error { panic("at the disco") }},
		"exits":       {act: func(context.Context, pgx.Tx) error { runtime.Goexit(); return nil }},
		"hides":       {act: func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "SELECT 1 / $1", 0); return nil }},
		"commits":     {act: func(ctx context.Context, tx pgx.Tx) error { _ = tx.Commit(ctx); return nil }},
		"commits raw": {act: func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Conn().Exec(ctx, "COMMIT AND CHAIN"); return nil }, ends: true},
		"leaves rows": {act: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 9)") //nolint:sqlclosecheck // it is left open
			return err
		}},
		"bad SQL": {act: func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT nothing"); return err }},
		"its setting": {act: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 1")
			return err
		}, runs: true},
		"hides that": {act: func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SET LOCAL lock_timeout = 1")
			return nil
		}, runs: true},
		"its lock": {act: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(1)")
			return err
		}, runs: true},
		"a savepoint": {act: func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return nil })
		}, runs: true},
		"rolls it back": {act: func(ctx context.Context, tx pgx.Tx) error {
			if err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1 / $1", 0); return err }); err == nil {
				return errors.New("it has not failed")
			}
			return nil
		}, runs: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSharing(t, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 1 })
			wait := crowded(8)
			const n = 40
			errs := s.deliver(t, n, postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
				wait()
				if !bad(msg) {
					return effect(msg, tx)
				}
				if err := effect(msg, tx); err != nil {
					return err
				}
				return test.act(ctx, tx)
			}))
			var left []string
			for i := 3; i < n && !test.runs; i += 10 {
				if id := fmt.Sprintf("m%03d", i); !test.ends {
					left = append(left, id)
				} else if got := s.result(id); got != middleware.ResultQuarantined {
					t.Errorf("%s is %s", id, got)
				}
			}
			s.once(t, n, left...)
			_, sum := s.ended()
			require.Positive(t, sum.Kept+sum.Apart+sum.Late)
			for i, err := range errs {
				if i%10 != 3 || test.runs {
					require.NoError(t, err)
				}
			}
			t.Logf("%+v", sum)
		})
	}
}

// Slow handlers never add up: those that have not begun in time run alone.
func TestSlowHandlersDoNotAddUp(t *testing.T) {
	t.Parallel()
	s := newSharing(t, func(c *middleware.InboxConfig) {
		c.BatchByHandler["stock"] = middleware.BatchConfig{Time: 100 * time.Millisecond, From: 4}
	})
	start := time.Now()
	const n = 60
	for _, err := range s.deliver(t, n, postgres.Handler(func(_ context.Context, tx pgx.Tx, msg *message.Message) error {
		<-time.After(50 * time.Millisecond)
		return effect(msg, tx)
	})) {
		require.NoError(t, err)
	}
	s.once(t, n)
	_, sum := s.ended()
	require.Positive(t, sum.Late)
	t.Logf("%s, %+v", time.Since(start), sum)
}

// A handler that does not return keeps the others for no longer than its own time.
func TestAHandlerThatHangsLosesItsBatch(t *testing.T) {
	t.Parallel()
	s := newSharing(t, func(c *middleware.InboxConfig) {
		c.HandlerTimeout, c.CommitTimeout = time.Second, time.Second
		c.BatchByHandler["stock"] = middleware.BatchConfig{Time: 600 * time.Millisecond, From: 4}
		c.Retry.MaxAttempts = 1
	})
	release := make(chan struct{})
	time.AfterFunc(8*time.Second, func() { close(release) })
	const n = 40
	var (
		shared sync.Map // transactions in which a handler has run
		hangs  atomic.Bool
		wait   = crowded(8)
	)
	s.deliver(t, n, postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		wait()
		var id string
		if err := tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text").Scan(&id); err != nil {
			return err
		}
		if _, again := shared.LoadOrStore(id, true); again && hangs.CompareAndSwap(false, true) {
			<-release
		}
		return effect(msg, tx)
	}))
	s.once(t, n) // its failure is that of a connection which others had
	_, sum := s.ended()
	require.ErrorIs(t, sum.Lost, stores.ErrBatchLost)
}
