package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/dbproxy"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// sharing is an inbox whose handler shares transactions, and what is seen of it.
type sharing struct {
	*middleware.Inbox
	counted

	mu  sync.Mutex
	sum middleware.BatchEnd
	n   int // batches
}

func (s *sharing) BatchEnded(b middleware.BatchEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.sum.Size, s.sum.Kept, s.sum.Failed, s.sum.Apart, s.sum.Late = s.sum.Size+b.Size, s.sum.Kept+b.Kept, s.sum.Failed+b.Failed, s.sum.Apart+b.Apart, s.sum.Late+b.Late
	s.sum.NotWon += b.NotWon
	if b.Lost != nil {
		s.sum.Lost = b.Lost
	}
}

func (s *sharing) ended() (batches int, sum middleware.BatchEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, s.sum
}

func newSharing(t *testing.T, p product, change ...func(*middleware.InboxConfig)) *sharing {
	t.Helper()
	s := &sharing{counted: newCounted(t, p, true)}
	store, err := s.with(t, true, "", mysql.Config{MaxOpenConns: 30})
	require.NoError(t, err)
	config := middleware.InboxConfig{
		Service: "billing", Handler: "charge", Hooks: []middleware.Hook{s}, Logger: slog.New(slog.DiscardHandler),
		HandlerTimeout: 10 * time.Second, CommitTimeout: 10 * time.Second,
		BatchByHandler: map[string]middleware.BatchConfig{"charge": {Time: 5 * time.Second, From: 2}},
	}
	for _, f := range change {
		f(&config)
	}
	s.Inbox, err = middleware.NewInbox(store, config)
	require.NoError(t, err)
	require.NoError(t, s.Inbox.Register(t.Context(), "charge", "orders"))
	return s
}

// deliver delivers messages at the same time, each once, and returns what the inbox has answered.
func (s *sharing) deliver(from, to int, handle message.NoPublishHandlerFunc) []error {
	var (
		errs = make([]error, to-from)
		all  sync.WaitGroup
		wrap = s.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) })
	)
	for i := range errs {
		all.Go(func() {
			exited := true
			defer func() {
				if r := recover(); r != nil {
					errs[i] = fmt.Errorf("%v", r)
				} else if exited {
					errs[i] = errors.New("exited")
				}
			}()
			_, errs[i] = wrap(message.NewMessage(fmt.Sprintf("m%04d", from+i), nil))
			exited = false
		})
	}
	all.Wait()
	return errs
}

// once checks that each of n messages has its effect exactly once, but for those that are left.
func (s *sharing) once(t *testing.T, n int, left func(i int) bool) {
	t.Helper()
	counts := make(map[string]int)
	rows, err := s.admin.QueryContext(t.Context(), "SELECT label, count(*) FROM effect GROUP BY label")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var label string
		var n int
		require.NoError(t, rows.Scan(&label, &n))
		counts[label] = n
	}
	require.NoError(t, rows.Err())
	for i := range n {
		id, want := fmt.Sprintf("m%04d", i), 1
		if left(i) {
			want = 0
		}
		if counts[id] != want {
			t.Errorf("%s has %d effects, want %d", id, counts[id], want)
		}
		v, err := s.Look(t.Context(), stores.Key{Consumer: billing, ID: []byte("u:" + id)}, stores.Fingerprint{})
		require.NoError(t, err)
		if (v.Outcome == stores.Duplicate) != (want == 1) {
			t.Errorf("%s is %s", id, v.Outcome)
		}
	}
}

func none(int) bool { return false }

func effectOf(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (?)", msg.UUID)
	return err
}

var errRefused = errors.New("refused")

// Whatever a handler does to its transaction happens to its message alone.
func TestDishonestHandlersInBatches(t *testing.T) {
	t.Parallel()
	bad := func(i int) bool { return i%10 == 3 }
	sends := func(text string) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, text); return err }
	}
	acts := map[string]struct {
		act  func(ctx context.Context, tx *sql.Tx) error
		runs bool // and completes, in a transaction of its own
	}{
		"fails":       {act: func(context.Context, *sql.Tx) error { return errRefused }},
		"panics":      {act: func(context.Context, *sql.Tx) error { panic("at the disco") }},
		"exits":       {act: func(context.Context, *sql.Tx) error { runtime.Goexit(); return nil }},
		"bad SQL":     {act: sends("SELECT nothing")},
		"commits":     {act: func(_ context.Context, tx *sql.Tx) error { _ = tx.Commit(); return nil }},
		"commits SQL": {act: func(ctx context.Context, tx *sql.Tx) error { _, _ = tx.ExecContext(ctx, "COMMIT"); return nil }},
		"DDL":         {act: sends("CREATE TABLE IF NOT EXISTS ddl (n INT)")},
		"leaves rows": {act: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.QueryContext(ctx, numbers(50_000)+" SELECT n FROM numbers") //nolint:sqlclosecheck,rowserrcheck // it is left open
			return err
		}},
		"hides":        {runs: true, act: func(ctx context.Context, tx *sql.Tx) error { _, _ = tx.ExecContext(ctx, "SELECT nothing"); return nil }},
		"its variable": {runs: true, act: sends("SET @mine = 1")},
		"its lock":     {runs: true, act: sends("SELECT GET_LOCK('mine', 0)")},
		"a savepoint":  {runs: true, act: sends("SAVEPOINT mine")},
	}
	byTurns(t, func(t *testing.T, p product) {
		for name, test := range acts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newSharing(t, p, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 1 })
				const n = 40
				errs := s.deliver(0, n, mysql.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
					if err := effectOf(ctx, tx, msg); err != nil || msg.UUID[4] != '3' {
						return err
					}
					return test.act(ctx, tx)
				}))
				s.once(t, n, func(i int) bool { return bad(i) && !test.runs })
				for i, err := range errs {
					if !bad(i) || test.runs {
						require.NoError(t, err)
					}
				}
				_, sum := s.ended()
				t.Logf("%+v", sum)
				require.Positive(t, sum.Size)
			})
		}
	})
}

// Batches that meet on the same rows deadlock, and come to an end all the same: each message has
// its effects once.
func TestBatchesThatDeadlockComeToAnEnd(t *testing.T) {
	t.Parallel()
	const hot, n, most = 100, 200, 20
	byTurns(t, func(t *testing.T, p product) {
		s := newSharing(t, p, func(c *middleware.InboxConfig) {
			c.Retry = middleware.RetryPolicy{MaxAttempts: 100, Placement: stores.PlacementRedelivered}
		})
		ctx := t.Context()
		_, err := s.admin.ExecContext(ctx, "CREATE TABLE hot (id INT PRIMARY KEY, n INT NOT NULL)")
		require.NoError(t, err)
		_, err = s.admin.ExecContext(ctx, fmt.Sprintf("INSERT INTO hot %s SELECT n, 0 FROM numbers WHERE n < %d", numbers(100_000), hot))
		require.NoError(t, err)
		var deadlocks atomic.Int32
		handle := mysql.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			for range 2 {
				if _, err := tx.ExecContext(ctx, "UPDATE hot SET n = n + 1 WHERE id = ?", rand.IntN(hot)); err != nil {
					if e, ok := errors.AsType[*driver.MySQLError](err); ok && e.Number == 1213 {
						deadlocks.Add(1)
					}
					return err
				}
			}
			return effectOf(ctx, tx, msg)
		})
		delivered := 0
		for round := 0; deadlocks.Load() == 0 && round < most; round++ { // few batches may not meet
			errs := s.deliver(delivered, delivered+n, handle)
			for try := 0; errors.Join(errs...) != nil && try < most; try++ {
				errs = s.deliver(delivered, delivered+n, handle)
			}
			require.NoError(t, errors.Join(errs...))
			delivered += n
		}
		s.once(t, delivered, none)
		var sum int
		require.NoError(t, s.admin.QueryRowContext(ctx, "SELECT sum(n) FROM hot").Scan(&sum))
		require.Equal(t, 2*delivered, sum)
		batches, all := s.ended()
		t.Logf("%d deadlocks; %d batches: %+v", deadlocks.Load(), batches, all)
		require.Positive(t, deadlocks.Load())
		require.Positive(t, all.Kept)
	})
}

// Requests of COMMIT and their replies are lost, and connections in the middle of batches, while
// handlers fail and each message comes twice. Each is delivered until it is acked.
func TestBatchesOnConnectionsThatAreLost(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		s := newSharing(t, p, func(c *middleware.InboxConfig) {
			c.CacheSize, c.Hold.MaxPause = -1, 50*time.Millisecond
			c.Retry = middleware.RetryPolicy{MaxAttempts: 1000, Backoff: middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond}, Placement: stores.PlacementRedelivered}
		})
		s.proxy.SetRandomFaults(dbproxy.RandomFaults{Seed: 1, LoseCommitReply: 0.1, LoseCommitRequest: 0.1})
		var runs atomic.Int32
		handle := mysql.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			n := runs.Add(1)
			if n%70 == 0 {
				s.proxy.CutAll()
			}
			if err := effectOf(ctx, tx, msg); err != nil || n%11 != 0 {
				return err
			}
			return errRefused
		})
		const n, most = 150, 50
		var twins sync.WaitGroup
		var left [2]error
		for i := range left {
			twins.Go(func() {
				for try := range most {
					if left[i] = errors.Join(s.deliver(0, n, handle)...); left[i] == nil || try == most {
						return
					}
				}
			})
		}
		twins.Wait()
		require.NoError(t, errors.Join(left[:]...))
		s.proxy.SetRandomFaults(dbproxy.RandomFaults{})
		s.once(t, n, none)
		batches, sum := s.ended()
		require.Error(t, sum.Lost)
		require.Positive(t, sum.Kept)
		t.Logf("%d runs, %d batches, %+v", runs.Load(), batches, sum)
	})
}

// Outputs of the members are committed with them, in their order, and none of those that fail.
func TestOutputsOfABatch(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		cost := c.cost(func() {
			ids := []string{fmt.Sprint("a", rand.Int()), fmt.Sprint("b", rand.Int()), fmt.Sprint("c", rand.Int())}
			b, members := beginBatch(t, c, ids...)
			for i, m := range members {
				require.NoError(t, m.Emit([]stores.Output{{ID: ids[i], Topic: "topic", OrderKey: []byte("key")}}))
				if i == 1 {
					require.NoError(t, m.Leave(t.Context()))
				} else {
					require.NoError(t, m.Keep(t.Context()))
				}
			}
			require.NoError(t, b.Commit(t.Context()))
		})
		trips := 2 + 1 // with that of the member that leaves
		if !p.maria() {
			trips += 1 + 2 // the lock of the order key, and both outputs
		}
		require.Equal(t, trips, cost.RoundTrips)
		var n int
		require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_outbox WHERE message_id NOT LIKE 'b%'").Scan(&n))
		require.Equal(t, 4*2, n)
	})
}
