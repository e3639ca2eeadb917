package tables

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// answers is a DB that answers looks.
type answers struct {
	DB

	asked func(context.Context, Statement) error
}

func (a answers) Send(ctx context.Context, s Statement) (int64, error) { return 0, a.asked(ctx, s) }

// rowsOf are rows with ids. The length of the id stands for the server.
type rowsOf struct {
	ids [][]byte
	at  int
}

var _ sqlstore.Rows = (*rowsOf)(nil)

func (r *rowsOf) Next() bool { r.at++; return r.at <= len(r.ids) }
func (*rowsOf) Err() error   { return nil }

func (r *rowsOf) Scan(into ...any) error {
	id := r.ids[r.at-1]
	for _, to := range into {
		switch to := to.(type) {
		case *uint64:
			*to = uint64(len(id))
		case *stores.Status:
			*to = stores.StatusCompleted
			if string(id) == damaged {
				*to = stores.StatusPending // without a failure
			}
		case *[]byte:
			*to = id
		}
	}
	return nil
}

const damaged = "damaged"

func ids(of ...string) (ids [][]byte) {
	for _, id := range of {
		ids = append(ids, []byte(id))
	}
	return ids
}

// joined joins looks, which are not sent yet.
func joined(t *testing.T, l *looks, of ...string) (shared *sharedLook) {
	t.Helper()
	for i, id := range of {
		var index int
		shared, index = l.join([]byte(id))
		require.Equal(t, i, index)
	}
	l.begin(shared)
	return shared
}

func TestLooksShareARoundTrip(t *testing.T) {
	t.Parallel()
	trips := 0
	tables := &Tables{db: answers{asked: func(_ context.Context, s Statement) error {
		trips++
		require.Equal(t, ids("a", "bb", "a", "none", damaged), s.Args[1])
		return s.Read(&rowsOf{ids: ids(damaged, "bb", "a")})
	}}}
	var l looks
	shared := joined(t, &l, "a", "bb", "a", "none", damaged)
	later, index := l.join([]byte("later"))
	require.NotSame(t, shared, later)
	require.Zero(t, index)
	tables.send(t.Context(), 1, shared)
	<-shared.done
	require.NoError(t, shared.err)
	require.Equal(t, 1, trips)
	for i, server := range []uint64{1, 2, 1, 0, uint64(len(damaged))} {
		one := shared.found[i]
		require.Equal(t, server != 0, one.row.Found)
		require.Equal(t, server, one.row.Server)
		require.Equal(t, i == 4, one.err != nil, one.err)
	}
}

// With one processor all that can run have asked before the first one sends.
func TestLooksAtTheSameTimeShareRoundTrips(t *testing.T) { //nolint:paralleltest // it sets GOMAXPROCS
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const askers = 20
	var trips atomic.Int32
	tables := &Tables{db: answers{asked: func(_ context.Context, s Statement) error {
		trips.Add(1)
		some, shared := s.Args[1].([][]byte)
		if !shared {
			some = [][]byte{s.Args[1].([]byte)} //nolint:forcetypeassert // see above
		}
		return s.Read(&rowsOf{ids: some})
	}}}
	var all sync.WaitGroup
	for i := range askers {
		all.Go(func() {
			id := fmt.Append(nil, i)
			row, err := tables.lookUp(t.Context(), 1, id)
			if err != nil || row.Server != uint64(len(id)) {
				t.Errorf("%s: %+v, %v", id, row, err)
			}
		})
	}
	all.Wait()
	if n := trips.Load(); n > askers/2 {
		t.Errorf("%d looks took %d round trips", askers, n)
	}
}

// What fails for several is asked again for each alone, with its own context, and nobody waits for a
// look that panicked.
func TestLooksThatFailTogetherAreAskedAlone(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func() error{
		"error": func() error { return errors.New("connection lost") },
		"panic": func() error { panic("a tracer") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, goOn := make(chan struct{}), make(chan struct{})
			var alone sync.Map
			tables := &Tables{}
			tables.db = answers{asked: func(ctx context.Context, s Statement) error {
				id, one := s.Args[1].([]byte)
				if !one {
					close(begun)
					<-goOn
					return fails()
				}
				alone.Store(string(id), true)
				if ctx.Err() != nil {
					return fmt.Errorf("no free connection: %w", ctx.Err())
				}
				return s.Read(&rowsOf{ids: [][]byte{id}})
			}}
			l := tables.looksOf(1)
			first, _ := l.join([]byte("first")) // stands for a leader, which calls send below
			look := func(ctx context.Context, id string, asked chan<- error) {
				_, err := tables.lookUp(ctx, 1, []byte(id))
				asked <- err
			}
			gone, cancel := context.WithCancel(t.Context())
			stays, leaves := make(chan error, 1), make(chan error, 1)
			go look(t.Context(), "stays", stays)
			go look(gone, "leaves", leaves)
			for waiting := 1; waiting < 3; runtime.Gosched() {
				l.mu.Lock()
				waiting = len(first.ids)
				l.mu.Unlock()
			}
			l.begin(first)
			go func() {
				defer func() { _ = recover() }()
				tables.send(t.Context(), 1, first)
			}()
			<-begun
			cancel()
			require.ErrorContains(t, <-leaves, "no free connection") // the driver says why
			close(goOn)
			require.NoError(t, <-stays)
			_, asked := alone.Load("stays")
			require.True(t, asked)
		})
	}
}

// Only the one who sends waits for a connection that does not answer.
func TestLooksDoNotWaitForADeadConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tables := &Tables{db: answers{asked: func(ctx context.Context, s Statement) error {
			id, alone := s.Args[1].([]byte)
			if !alone {
				<-ctx.Done()
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return s.Read(&rowsOf{ids: [][]byte{id}})
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		shared, _ := tables.looksOf(1).join([]byte("first"))
		answered := make(chan error, 1)
		go func() {
			_, err := tables.lookUp(ctx, 1, []byte("second"))
			answered <- err
		}()
		synctest.Wait()
		tables.looksOf(1).begin(shared)
		tables.send(ctx, 1, shared)
		require.ErrorIs(t, shared.err, context.DeadlineExceeded)
		require.NoError(t, <-answered)
	})
}

// A full round trip begins without those that come later.
func TestSharedLooksAreBounded(t *testing.T) {
	t.Parallel()
	var l looks
	first, _ := l.join([]byte{0})
	for i := 1; i < maxShared; i++ {
		shared, index := l.join([]byte{byte(i)})
		require.Same(t, first, shared)
		require.Equal(t, i, index)
	}
	second, index := l.join(nil)
	require.NotSame(t, first, second)
	require.Zero(t, index)
	l.begin(first)
	_, index = l.join(nil)
	require.Equal(t, 1, index)
}
