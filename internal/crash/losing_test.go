package crash

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
)

// A server loses its last commits as one of the events of a random run. What was acked since
// then is delivered again, as after offsets were set back, and every invariant holds for all.

func init() {
	variants["known beyond a failover"] = variant{
		rule: "what a lost server has said is not believed of the next one", find: []string{"I2", "I3", "I6"}, loses: true,
		around: knownForEver,
	}
}

// knownForEver acks what this process has seen acked, whatever has become of the server.
func knownForEver(inbox message.HandlerMiddleware) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		var known sync.Map
		next := inbox(h)
		return func(msg *message.Message) ([]*message.Message, error) {
			of := msg.UUID + "\x00" + string(msg.Payload)
			if _, ok := known.Load(of); ok {
				return nil, nil
			}
			said, err := next(msg)
			if err == nil {
				known.Store(of, true)
			}
			return said, err
		}
	}
}

// losing are the systems whose server can lose its last commits.
func losing() map[string]opener {
	all := make(map[string]opener)
	for name, open := range failovers {
		all[name] = func(t *testing.T) *system {
			t.Helper()
			f := open(t)
			f.failing = f
			return f.system
		}
	}
	return all
}

// believed is for how long processes may go by what the lost server has told them, and a
// second more.
const believed = 3 * time.Second

// lost is when commits were made that are lost, until nobody believes in them any more.
type lost struct{ begun, ended time.Time } // zero: never

func (l lost) in(at time.Time) bool {
	return !l.begun.IsZero() && !at.Before(l.begun) && (l.ended.IsZero() || at.Before(l.ended))
}

// outside is what has happened before and after.
func (l lost) outside(history []event) (outside []event) {
	for _, e := range history {
		if !l.in(e.At) {
			outside = append(outside, e)
		}
	}
	return outside
}

// since is what has become of deliveries that began when all was well again, or of all if
// nothing was lost.
func (l lost) since(history []event) (since []event) {
	if l.begun.IsZero() {
		return history
	}
	type delivery struct {
		pid int
		key
	}
	began := make(map[delivery]bool)
	for _, e := range inOrderOfTime(history) {
		d := delivery{e.PID, key{e.Consumer, e.ID}}
		if e.What == saidDelivered {
			began[d] = !e.At.Before(l.ended)
		}
		if began[d] {
			since = append(since, e)
		}
	}
	return since
}

// mayBeLost reports whether a message was acked that the server then forgot.
func (l *ledger) mayBeLost(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost.begun.IsZero() && e.firstAck.IsZero() || l.lost.in(e.firstAck)
}

// again ends the time of the loss, and returns what was first acked in it.
func (l *ledger) again() (again []*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost.begun.IsZero() {
		return nil
	}
	for _, s := range l.order {
		if e := l.entries[s]; l.lost.in(e.firstAck) {
			e.acks, e.firstAck = 0, time.Time{}
			again = append(again, e)
		}
	}
	l.lost.ended = time.Now()
	return again
}

// loss is that of a trial: half of its messages are published when commits begin to be lost,
// and what was acked until processes know is published again.
type loss struct {
	*failing

	parted chan struct{}
	again  chan []*entry
}

// loses has the server lose the commits of up to a second, before what else disturbs it.
func (tr *trial) loses(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	tr.loss = &loss{tr.system.failing, make(chan struct{}), make(chan []*entry, 1)}
	others := tr.disturb
	tr.disturb = func(ctx context.Context, l *ledger) error {
		begins := sync.OnceFunc(func() { close(tr.loss.parted) })
		defer close(tr.loss.again)
		defer begins()
		if !pause.Sleep(ctx, between(500*time.Millisecond, 2*time.Second)) {
			return nil
		}
		l.mu.Lock()
		l.lost.begun = time.Now()
		l.mu.Unlock()
		l.happened("the server will lose its commits")
		if err := tr.loss.part(); err != nil {
			return err
		}
		begins()
		pause.Sleep(ctx, between(100*time.Millisecond, time.Second))
		if err := tr.loss.succeed(); err != nil {
			return err
		}
		l.happened("the server has lost its last commits")
		pause.Sleep(ctx, believed)
		again := l.again()
		l.happened(fmt.Sprintf("%d messages are published again", len(again)))
		tr.loss.again <- again
		if others == nil {
			return nil
		}
		return others(ctx, l)
	}
}

func (o *loss) source(l *ledger, orders []order) iter.Seq2[fleet.Message, error] {
	half := len(orders) / 2
	return func(yield func(fleet.Message, error) bool) {
		for m, err := range l.source(orders[:half]) {
			if !yield(m, err) {
				return
			}
		}
		<-o.parted
		for m, err := range l.source(orders[half:]) {
			if !yield(m, err) {
				return
			}
		}
		for _, e := range <-o.again {
			l.publish(e.order, e.consumer)
			if !yield(e.to(e.consumer), nil) {
				return
			}
		}
	}
}
