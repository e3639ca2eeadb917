package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// sharingStore is a scripted store with batches, of which one runs at a time.
type sharingStore struct {
	scriptedStore

	commit error            // of each batch
	keep   map[string]error // of members, by their message's UUID
	unwon  map[string]bool  // messages whose claims batches do not win
}

func (*sharingStore) BatchLimit(int) int { return 1000 }

func (*sharingStore) Capabilities() stores.Capabilities {
	return stores.Capabilities{SingleWriter: true}
}

func (s *sharingStore) BeginBatch(_ context.Context, claims []stores.Claim) (stores.Batch, error) {
	b := &scriptedBatch{commit: s.commit, members: make([]stores.Member, len(claims))}
	for i := range claims {
		if id := rawID(claims[i].Key); !s.unwon[id] {
			b.members[i] = &scriptedMember{keep: s.keep[id]}
		}
	}
	return b, nil
}

type scriptedBatch struct {
	members []stores.Member
	commit  error
}

func (b *scriptedBatch) Members() []stores.Member     { return b.members }
func (*scriptedBatch) Server() uint64                 { return 0 }
func (b *scriptedBatch) Commit(context.Context) error { return b.commit }
func (*scriptedBatch) Rollback(context.Context) error { return nil }
func (*scriptedBatch) Cut()                           {}

type scriptedMember struct {
	stores.Emitter

	keep error
}

func (*scriptedMember) Context(parent context.Context) context.Context { return parent }
func (m *scriptedMember) Keep(context.Context) error                   { return m.keep }
func (*scriptedMember) Leave(context.Context) error                    { return nil }

// sharer is an inbox whose handler shares transactions, and what is seen of it.
type sharer struct {
	*middleware.Inbox

	t      *testing.T
	store  *sharingStore
	log    written
	rounds int

	mu   sync.Mutex
	ends []middleware.BatchEnd
}

func (s *sharer) BatchEnded(b middleware.BatchEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = append(s.ends, b)
}

// newSharer is for use in a bubble of synctest. Its handler's batches have four members at most.
func newSharer(t *testing.T) *sharer {
	t.Helper()
	s := &sharer{t: t, store: &sharingStore{keep: make(map[string]error), unwon: make(map[string]bool)}}
	s.store.resolve = func() (bool, error) { return true, nil }
	s.Inbox = newInbox(t, s.store, func(c *middleware.InboxConfig) {
		c.Hooks = []middleware.Hook{s}
		c.Logger = slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c.BatchByHandler = map[string]middleware.BatchConfig{"stock": {Size: 4, From: 1, Time: time.Second}}
	})
	return s
}

// share delivers messages that begin one batch, in this order: they wait while another message
// has the only place, alone.
func (s *sharer) share(h func(*message.Message) error, uuids ...string) {
	s.t.Helper()
	var all sync.WaitGroup
	deliver := func(uuid string, h func(*message.Message) error) {
		all.Go(func() {
			if _, err := s.Middleware(handle(h))(newMessage(s.t.Context(), uuid)); err != nil {
				s.t.Errorf("%s: %v", uuid, err)
			}
		})
		synctest.Wait()
	}
	begin := make(chan struct{})
	s.rounds++
	deliver(fmt.Sprint("alone", s.rounds), func(*message.Message) error { <-begin; return nil })
	for _, uuid := range uuids {
		deliver(uuid, h)
	}
	close(begin)
	all.Wait()
}

func (s *sharer) state() middleware.BatchState { return s.Batches()["stock"] }

// lines are those of the log, without their time.
func (s *sharer) lines() (all []string) {
	for line := range strings.Lines(s.log.String()) {
		_, line, _ = strings.Cut(line, " ")
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

func fine(*message.Message) error { return nil }

const numberOfACard = "4111 1111 1111 1111"

var errLostWithANumber = errors.Join(stores.ErrBatchLost, errors.New(numberOfACard))

var statesOfBatches = map[string]struct {
	script func(*sharingStore)
	handle func(*message.Message) error
	state  middleware.BatchState
	end    middleware.BatchEnd // but for Consumer, Lost and Took
}{
	"all are kept": {
		state: middleware.BatchState{Size: 4, Batches: 1},
		end:   middleware.BatchEnd{Size: 4, Kept: 4},
	},
	"one fails": {
		handle: func(m *message.Message) error { return map[string]error{"b": errors.New(numberOfACard)}[m.UUID] },
		state:  middleware.BatchState{Size: 4, Batches: 1, Left: 1},
		end:    middleware.BatchEnd{Size: 4, Kept: 3, Failed: 1},
	},
	"one needs its own": {
		script: func(s *sharingStore) {
			s.keep["b"] = fmt.Errorf("store: %w", &stores.NotSharedError{What: "SET LOCAL"})
		},
		state: middleware.BatchState{Size: 4, Apart: "SET LOCAL", Batches: 1, Left: 1},
		end:   middleware.BatchEnd{Size: 4, Kept: 3, Apart: 1},
	},
	"two are late": {
		handle: func(*message.Message) error { <-time.After(600 * time.Millisecond); return nil },
		state:  middleware.BatchState{Size: 2, Batches: 1},
		end:    middleware.BatchEnd{Size: 4, Kept: 2, Late: 2},
	},
	"one is not won": {
		script: func(s *sharingStore) { s.unwon["b"] = true },
		state:  middleware.BatchState{Size: 4, Batches: 1},
		end:    middleware.BatchEnd{Size: 3, Kept: 3, NotWon: 1},
	},
	"a member loses it": {
		script: func(s *sharingStore) { s.keep["b"] = errLostWithANumber },
		state:  middleware.BatchState{Size: 2, Batches: 1, Left: 1, Lost: 1, Why: stores.ErrNotCommitted.Error() + "; " + stores.ErrBatchLost.Error()},
		end:    middleware.BatchEnd{Size: 4, Kept: 1, Failed: 1, Late: 2, Lost: stores.ErrBatchLost},
	},
	"its commit loses it": {
		script: func(s *sharingStore) { s.commit = errors.Join(stores.ErrNotCommitted, errLostWithANumber) },
		state:  middleware.BatchState{Size: 2, Batches: 1, Lost: 1, Why: stores.ErrNotCommitted.Error() + "; " + stores.ErrBatchLost.Error()},
		end:    middleware.BatchEnd{Size: 4, Kept: 4, Lost: stores.ErrNotCommitted},
	},
	"its commit is unknown": {
		script: func(s *sharingStore) { s.commit = errors.Join(stores.ErrCommitUnknown, errors.New(numberOfACard)) },
		state:  middleware.BatchState{Size: 2, Batches: 1, Lost: 1, Why: stores.ErrCommitUnknown.Error()},
		end:    middleware.BatchEnd{Size: 4, Kept: 4, Lost: stores.ErrCommitUnknown},
	},
}

// What a batch cost shows in the state, in millpond's words only: a database's may contain values
// of messages.
func TestStateOfBatches(t *testing.T) {
	t.Parallel()
	for name, test := range statesOfBatches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSharer(t)
				if test.script != nil {
					test.script(s.store)
				}
				if test.handle == nil {
					test.handle = fine
				}
				s.share(test.handle, "a", "b", "c", "d")
				if got := s.state(); got != test.state {
					t.Errorf("%+v, want %+v", got, test.state)
				}
				s.ended(test.end)
			})
		})
	}
}

// ended checks what hooks were told of the only batch.
func (s *sharer) ended(want middleware.BatchEnd) {
	s.t.Helper()
	if len(s.ends) != 1 {
		s.t.Fatalf("%d batches", len(s.ends))
	}
	got := s.ends[0]
	if !errors.Is(got.Lost, want.Lost) || (got.Lost == nil) != (want.Lost == nil) {
		s.t.Errorf("lost by %v, want %v", got.Lost, want.Lost)
	}
	want.Consumer = stores.Consumer{Service: "inventory", Handler: "stock"}
	want.Lost, got.Lost, got.Took = nil, nil, 0
	if got != want {
		s.t.Errorf("%+v, want %+v", got, want)
	}
}

// The state is of the last loss and of all batches. Before the first message nothing is known,
// not even how many may share.
func TestStateOfBatchesAddsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharer(t)
		if got := s.Batches(); len(got) != 1 || got["stock"] != (middleware.BatchState{}) {
			t.Errorf("before the first message: %+v", got)
		}
		s.store.commit = errors.Join(stores.ErrNotCommitted, stores.ErrBatchLost)
		s.share(fine, "a", "b", "c", "d")
		s.store.commit = stores.ErrCommitUnknown
		s.share(fine, "e", "f")
		s.store.commit = nil
		s.share(fine, "g", "h") // each alone
		if got, want := s.state(), (middleware.BatchState{Size: 1, Batches: 2, Lost: 2, Why: stores.ErrCommitUnknown.Error()}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A database that loses batch after batch must not fill the log. What was left out is counted.
func TestFiveLostBatchesAMinuteAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharer(t)
		batch := func(n int) {
			ids := make([]string, n)
			for i := range ids {
				ids[i] = fmt.Sprint("m", s.rounds, "-", i)
			}
			s.share(fine, ids...)
		}
		lose := func(n int) {
			for range n {
				s.store.commit = errors.Join(stores.ErrNotCommitted, stores.ErrBatchLost, errors.New("of the database"))
				batch(4)
				s.store.commit = nil
				batch(2) // the limit was halved, and
				batch(3) // grows again
			}
		}
		const line = `level=WARN msg="millpond: a batch was not committed, or its outcome is unknown: its messages run again, each alone" ` +
			`consumer=inventory/stock messages=4 error="stores: not committed\nstores: the transaction that the message shared with others is lost\nof the database"`
		seen := 0
		check := func(when string, want ...string) {
			t.Helper()
			lines := s.lines()
			if got := lines[seen:]; !slices.Equal(got, want) {
				t.Errorf("%s:\n%s", when, strings.Join(got, "\n"))
			}
			seen = len(lines)
		}
		lose(7)
		check("seven", line, line, line, line, line)
		<-time.After(time.Minute)
		synctest.Wait()
		check("a minute later", `level=WARN msg="millpond: more batches were lost than are logged" consumer=inventory/stock not_logged=2 within=1m0s`)
		lose(1)
		check("the next one", line)
		if got := s.state().Lost; got != 8 {
			t.Errorf("%d are counted", got)
		}
	})
}

// Whoever reads the log learns why the handler became slower, and in whose words.
func TestHandlerThatCannotShareIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharer(t)
		s.store.keep["b"] = fmt.Errorf("store: %w", &stores.NotSharedError{What: "SET\x00LOCAL"})
		s.share(fine, "a", "b", "c", "d")
		s.share(fine, "e", "f") // each alone
		const want = `level=WARN msg="millpond: the handler does not share transactions any more" handler=inventory/stock ` +
			`reason="stores: the handler needs its own transaction, and runs again in one" what="\"SET\\x00LOCAL\""`
		if got := s.lines(); !slices.Equal(got, []string{want}) {
			t.Errorf("%s", strings.Join(got, "\n"))
		}
		if len(s.ends) != 1 {
			t.Errorf("%d batches", len(s.ends))
		}
	})
}

// A service must not run without the batches that its configuration promises.
func TestBatchesNeedAStoreThatHasThem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		store middleware.Store
		says  []string
	}{
		"a store without": {&scriptedStore{}, []string{"BatchByHandler", "*middleware_test.scriptedStore", "stores.Batcher"}},
		"a store with":    {&sharingStore{}, nil},
	} {
		_, err := middleware.NewInbox(test.store, middleware.InboxConfig{
			Service: "inventory", BatchByHandler: map[string]middleware.BatchConfig{"stock": {}},
		})
		if (err == nil) != (test.says == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, says := range test.says {
			if err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %q does not say %q", name, err, says)
			}
		}
	}
}
