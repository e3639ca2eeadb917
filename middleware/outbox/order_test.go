package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

const storyKeys = 12

// story is what eight writers have committed, each order key in the order of its commits.
type story struct {
	mu        sync.Mutex
	committed map[string][]string
	undone    map[string]bool
}

var errUndo = errors.New("undone")

// write runs a transaction that publishes and then counts, under the lock of the order key. Now
// and then it takes its time before it commits, or is undone.
func (s *story) write(r *rig, worker, n int) error {
	key, id := fmt.Sprint(rand.N(storyKeys)), fmt.Sprintf("%d-%d", worker, n)
	if r.unordered {
		key = id
	}
	undo, slow := rand.N(8) == 0, rand.N(40) == 0
	err := r.transact(func(publisher func(stores.PublisherConfig) message.Publisher, exec execer) error {
		if err := publisher(stores.PublisherConfig{OrderKey: byKey}).Publish("topic", newMessage(id, key)); err != nil {
			return err
		}
		s.mu.Lock() // nobody else has the order key now
		if undo {
			s.undone[id] = true
		} else {
			s.committed[key] = append(s.committed[key], id)
		}
		s.mu.Unlock()
		if slow {
			<-time.After(400 * time.Millisecond) // longer than the floor lags
		}
		if undo {
			return errUndo
		}
		return nil
	})
	if undo && errors.Is(err, errUndo) {
		return nil
	}
	return err
}

// tell has eight writers write while relays come and go, and returns what is wrong in the end.
func tell(r *rig, writes int, wrap func(stores.Outbox) stores.Outbox, p func(*broker) message.Publisher) (wrong []string) {
	r.tb.Helper()
	s := &story{committed: make(map[string][]string), undone: make(map[string]bool)}
	b := &broker{}
	c := quick(one(p(b)))
	c.LeaseTTL, c.PublishTimeout = 1200*time.Millisecond, time.Second
	store := r.outbox
	if wrap != nil {
		store = wrap(store)
	}
	ctx, done := context.WithCancel(r.tb.Context())
	var relays, writers sync.WaitGroup
	for i := range 4 {
		relays.Go(func() {
			for ctx.Err() == nil {
				life, end := context.WithTimeout(ctx, time.Duration(300+rand.N(1200))*time.Millisecond)
				if i < 2 { // two are always there
					life, end = context.WithCancel(ctx)
				}
				relay, err := outbox.New(store, c)
				if err != nil {
					panic(err)
				}
				_ = relay.Run(life)
				end()
			}
		})
	}
	for worker := range 8 {
		writers.Go(func() {
			for n := range writes {
				if err := s.write(r, worker, n); err != nil {
					r.tb.Errorf("worker %d: %v", worker, err)
				}
			}
		})
	}
	writers.Wait()
	for deadline := time.Now().Add(20 * time.Second); r.waiting() > 0 && time.Now().Before(deadline); {
		<-time.After(50 * time.Millisecond)
	}
	<-time.After(100 * time.Millisecond) // in which what is published twice shows
	done()
	relays.Wait()
	return s.check(b)
}

func (s *story) check(b *broker) (wrong []string) {
	first := make(map[string][]string)
	key := make(map[string]string)
	for _, msg := range b.messages() {
		key[msg.UUID] = msg.Metadata.Get("key")
	}
	for _, id := range b.first() {
		if s.undone[id] {
			wrong = append(wrong, "undone, and published: "+id)
		}
		first[key[id]] = append(first[key[id]], id)
	}
	for k, want := range s.committed {
		if got := first[k]; !slices.Equal(got, want) {
			wrong = append(wrong, fmt.Sprintf("key %s: published %d %q, committed %d %q", k, len(got), got, len(want), want))
		}
	}
	return wrong
}

func TestOrderKeysAreInTheOrderOfCommitsWhileRelaysComeAndGo(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		writes := 120
		if t.Name() == "TestOrderKeysAreInTheOrderOfCommitsWhileRelaysComeAndGo/sqlite" {
			writes = 40 // one after another
		}
		for _, wrong := range tell(r, writes, nil, func(b *broker) message.Publisher { return each{b} }) {
			t.Errorf("%.600s", wrong)
		}
	})
}

// A store may be told that a relay has published what it has not, and so on: each of these
// breaks one rule, and must be noticed.
func TestBrokenBuildsAreNoticed(t *testing.T) {
	t.Parallel()
	honest := func(b *broker) message.Publisher { return each{b} }
	t.Run("delete before confirm", func(t *testing.T) {
		t.Parallel()
		r := onPostgres(t)
		r.say("", "k", "a", "b")
		refuse := &broker{answer: func(*message.Message) error { return errors.New("no") }}
		_, stop := start(t, deletesFirst{r.outbox}, quick(one(each{refuse})))
		testenv.Eventually(t, "asked", func() bool { return refuse.times() > 0 })
		stop()
		if n := r.waiting(); n == 2 {
			t.Error("nothing is lost")
		}
	})
	t.Run("publish before commit", func(t *testing.T) {
		t.Parallel()
		r := onPostgres(t)
		b := &broker{}
		s := &story{committed: map[string][]string{}, undone: map[string]bool{}}
		early := *r
		early.transact = func(f func(func(stores.PublisherConfig) message.Publisher, execer) error) error {
			return r.transact(func(_ func(stores.PublisherConfig) message.Publisher, exec execer) error {
				return f(func(stores.PublisherConfig) message.Publisher { return b }, exec)
			})
		}
		for n := range 100 {
			check(t, s.write(&early, 0, n))
		}
		if len(s.check(b)) == 0 {
			t.Error("nothing is wrong")
		}
	})
	for name, broken := range map[string]func(stores.Outbox) stores.Outbox{
		"a floor that only rises": func(s stores.Outbox) stores.Outbox { return &risesOnly{Outbox: s} },
		"two of a key in a wave":  func(s stores.Outbox) stores.Outbox { return keyless{s} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := honest
			if name == "two of a key in a wave" { // one at a time, by several goroutines
				p = func(b *broker) message.Publisher {
					b.answer = func(*message.Message) error { <-time.After(rand.N(3 * time.Millisecond)); return nil }
					return b
				}
			}
			for range 5 {
				if wrong := tell(onPostgres(t), 100, broken, p); len(wrong) > 0 {
					t.Logf("%.200s", wrong[0])
					return
				}
			}
			t.Error("nothing is wrong")
		})
	}
}

type deletesFirst struct{ stores.Outbox }

func (d deletesFirst) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	p, err := d.Outbox.Pending(ctx, q)
	var s stores.Settlement
	for _, o := range p.Outputs {
		s.Published = append(s.Published, o.Number)
	}
	return p, errors.Join(err, d.Settle(ctx, s))
}

// risesOnly never reads below what it has seen.
type risesOnly struct {
	stores.Outbox
	mu sync.Mutex
	at int64
}

func (f *risesOnly) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	f.mu.Lock()
	q.After = max(q.After, f.at)
	f.mu.Unlock()
	p, err := f.Outbox.Pending(ctx, q)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range p.Outputs {
		f.at = max(f.at, o.Number)
	}
	return p, err
}

// keyless does not tell which outputs have the same order key.
type keyless struct{ stores.Outbox }

func (k keyless) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	p, err := k.Outbox.Pending(ctx, q)
	for i := range p.Outputs {
		p.Outputs[i].OrderKey = nil
	}
	return p, err
}
