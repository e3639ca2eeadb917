package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// throng lets messages share transactions: SQLite has one place, and whoever has it waits until
// all others have asked for it.
type throng struct {
	all chan struct{} // closed once all claims have started

	mu      sync.Mutex
	missing map[string]bool // messages whose claims have not started
	sum     middleware.BatchEnd
	batches int
}

func newThrong(ids []string) *throng {
	g := &throng{all: make(chan struct{}), missing: make(map[string]bool)}
	for _, id := range ids {
		g.missing[id] = true
	}
	return g
}

func (g *throng) ClaimStart(ctx context.Context, c stores.Claim) context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	if id := rawID(c.Key); g.missing[id] {
		if delete(g.missing, id); len(g.missing) == 0 {
			close(g.all)
		}
	}
	return ctx
}

func (g *throng) BatchEnded(b middleware.BatchEnd) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.batches++
	g.sum.Kept, g.sum.Failed, g.sum.Apart, g.sum.NotWon = g.sum.Kept+b.Kept, g.sum.Failed+b.Failed, g.sum.Apart+b.Apart, g.sum.NotWon+b.NotWon
	g.sum.Lost = errors.Join(g.sum.Lost, b.Lost)
}

// wait waits in a handler until all claims have started.
func (g *throng) wait(t *testing.T) {
	select {
	case <-g.all:
	case <-time.After(10 * time.Second):
		g.mu.Lock()
		defer g.mu.Unlock()
		t.Errorf("these do not claim: %v", g.missing)
	}
}

// configure switches batches on.
func (g *throng) configure(c *middleware.InboxConfig) {
	c.Hooks = append(c.Hooks, g)
	c.BatchByHandler = map[string]middleware.BatchConfig{"stock": {From: 1, Time: 20 * time.Second}}
}

// numbered are four messages of each kind.
func numbered(kinds ...string) (ids []string) {
	for _, kind := range kinds {
		for i := range 4 {
			ids = append(ids, fmt.Sprint(kind, i))
		}
	}
	return ids
}

func kindOf(id string) string { return strings.TrimRight(id, "0123456789") }

// spans are the hooks' calls for each message. A start hands its end a context.
type spans struct {
	t *testing.T

	mu    sync.Mutex
	calls map[string][]string
	open  int
}

type (
	deliveryOfSpans struct{}
	spanOfSpans     struct{}
)

type span struct {
	what, id string
	ended    bool
}

func (s *spans) DeliveryStart(ctx context.Context, d middleware.DeliveryStart) context.Context {
	return context.WithValue(ctx, deliveryOfSpans{}, d.Message.UUID)
}

func (s *spans) DeliveryEnd(ctx context.Context, d middleware.DeliveryEnd) {
	s.note(ctx, "end:"+string(d.Result))
}

func (s *spans) note(ctx context.Context, call string) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := ctx.Value(deliveryOfSpans{}).(string)
	if !ok {
		s.t.Errorf("%s of no delivery", call)
	}
	s.calls[id] = append(s.calls[id], call)
	return id
}

func (s *spans) start(ctx context.Context, what string) context.Context {
	id := s.note(ctx, what)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return context.WithValue(ctx, spanOfSpans{}, &span{what: what, id: id})
}

func (s *spans) end(ctx context.Context, what, result string) {
	id := s.note(ctx, result)
	s.mu.Lock()
	defer s.mu.Unlock()
	began, ok := ctx.Value(spanOfSpans{}).(*span)
	if !ok || began.what != what || began.id != id || began.ended {
		s.t.Errorf("%s: a %s has ended that has not begun: %+v", id, what, began)
		return
	}
	began.ended = true
	s.open--
}

func (s *spans) ClaimStart(ctx context.Context, _ stores.Claim) context.Context {
	return s.start(ctx, "claim")
}

func (s *spans) ClaimEnd(ctx context.Context, v stores.Verdict, err error) {
	if err != nil {
		s.t.Errorf("claim: %v", err)
	}
	s.end(ctx, "claim", fmt.Sprint(v.Outcome))
}

func (s *spans) CommitStart(ctx context.Context) context.Context { return s.start(ctx, "commit") }

func (s *spans) CommitEnd(ctx context.Context, err error) {
	result := "done"
	if err != nil {
		result = "undone"
	}
	s.end(ctx, "commit", result)
}

// begunBefore lets another process deliver those messages first that are completed, parked, or
// due for a redelivery.
func (s *speaker) begunBefore(ids []string) {
	s.t.Helper()
	for _, id := range ids {
		h, again := fine, false
		var change func(*middleware.InboxConfig)
		switch kindOf(id) {
		case "completed":
		case "parked":
			h = func(*message.Message) error { return errors.New("it fails") }
		case "due":
			h, change, again = func(*message.Message) error { return errors.New("it fails") }, redelivered, true
		default:
			continue
		}
		in := s.inbox(func(c *middleware.InboxConfig) {
			c.Handler = "stock"
			if change != nil {
				change(c)
			}
		})
		if _, err := in.Middleware(handle(h))(newMessage(s.t.Context(), id)); (err != nil) != again {
			s.t.Fatalf("%s: %v", id, err)
		}
	}
}

// Hooks see each message's own claims and commits, each with its end, whatever became of its
// batch.
func TestHooksOfMembersPairUp(t *testing.T) {
	t.Parallel()
	const (
		once  = "claim claimed commit done end:completed"
		apart = "claim claimed " + once // it has left a batch before its commit
		lost  = "claim claimed commit undone " + once
	)
	for name, want := range map[string]map[string][]string{
		"each for itself": {
			"kept": {once}, "fails": {"claim claimed end:parked"},
			"completed": {"claim duplicate end:duplicate"}, "parked": {"claim parked end:parked"}, "due": {once}, // these are not won in a batch
		},
		"apart":        {"kept": {once}, "apart": {apart, once}}, // once: nobody shared with it
		"a lost batch": {"completed": {"claim duplicate end:duplicate"}, "kept": {once, lost}, "loses": {apart, "claim claimed end:parked"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpeaker(t)
			ids := numbered(slices.Sorted(maps.Keys(want))...)
			s.begunBefore(ids)
			seen, together := &spans{t: t, calls: make(map[string][]string)}, newThrong(ids)
			s.together(s.inbox(func(c *middleware.InboxConfig) {
				c.Handler, c.Hooks = "stock", []middleware.Hook{seen}
				together.configure(c)
			}), together, ids)
			for _, id := range ids {
				if got := strings.Join(seen.calls[id], " "); !slices.Contains(want[kindOf(id)], got) {
					t.Errorf("%s: %s", id, got)
				}
			}
			sum := together.sum
			shared := map[string]bool{
				"each for itself": sum.Kept > 1 && sum.Failed > 0 && sum.NotWon > 2, "apart": sum.Apart > 0, "a lost batch": sum.Lost != nil,
			}
			if seen.open != 0 || !shared[name] {
				t.Errorf("%d are open, %+v", seen.open, sum)
			}
		})
	}
}

// together delivers messages at the same time. Each does what the kind of its id says.
func (s *speaker) together(in *middleware.Inbox, g *throng, ids []string) {
	var all sync.WaitGroup
	for _, id := range ids {
		var runs int
		h := in.Middleware(handle(func(m *message.Message) error {
			g.wait(s.t)
			runs++
			tx, _ := sqlite.TxFromContext(m.Context())
			var err error
			switch kind := kindOf(m.UUID); {
			case kind == "fails":
				err = errors.New("it fails")
			case kind == "apart":
				_, err = tx.ExecContext(m.Context(), "PRAGMA defer_foreign_keys = ON")
			case kind == "loses" && runs == 1: // the messages that are completed conflict
				_, err = tx.ExecContext(m.Context(), "INSERT OR ROLLBACK INTO millpond_inbox SELECT * FROM millpond_inbox")
			}
			return err
		}))
		all.Go(func() { _, _ = h(newMessage(s.t.Context(), id)) })
	}
	all.Wait()
}

// burst is a subscriber that has all its messages in flight at once.
type burst []*message.Message

func (b burst) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	all := make(chan *message.Message, len(b))
	for _, m := range b {
		all <- m
	}
	close(all)
	return all, nil
}

func (burst) Close() error { return nil }

// Each message of a batch has its own outputs: they are written once if it is completed, and
// never if it is not.
func TestOutputsOfMembers(t *testing.T) {
	t.Parallel()
	s := newSpeaker(t)
	ids := numbered("kept", "fails", "huge", "more")
	together := newThrong(ids)
	in := s.inbox(together.configure, func(c *middleware.InboxConfig) {
		c.Outputs.Destinations = map[string]middleware.Destination{"kafka": {MaxBytes: 1000}}
	})
	var arriving burst
	for _, id := range ids {
		arriving = append(arriving, newMessage(t.Context(), id))
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(in.Middleware)
	router.AddHandler("stock", "orders", arriving, "shipments", outbox.Publisher("kafka"), func(m *message.Message) ([]*message.Message, error) {
		together.wait(t)
		said := []*message.Message{message.NewMessage("by "+m.UUID, nil)}
		switch kindOf(m.UUID) {
		case "fails":
			return said, errors.New("it fails")
		case "huge": // is refused, and so are the effects
			return append(said, message.NewMessage("no", make([]byte, 2000))), nil
		}
		return said, nil
	})
	if err := router.Run(t.Context()); err != nil { // ends with the subscription
		t.Fatal(err)
	}
	var got, want []string
	for _, o := range s.said() {
		got = append(got, o.ID)
	}
	for _, id := range ids {
		if kind := kindOf(id); kind != "fails" && kind != "huge" {
			want = append(want, "by "+id)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("said: %v", got)
	}
	if sum := together.sum; sum.Kept < 4 || sum.Failed < 4 || sum.Lost != nil {
		t.Errorf("they have not shared: %+v", sum)
	}
}
