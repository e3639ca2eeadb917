package outbox_test

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// told is a hook.
type told struct {
	mu      sync.Mutex
	sums    [3]int
	backlog []stores.OutputCount
}

func (h *told) Relayed(_ string, published, refused, failed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sums[0] += published
	h.sums[1] += refused
	h.sums[2] += failed
	panic("what a hook does concerns nobody")
}

func (h *told) Backlog(counts []stores.OutputCount) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.backlog = counts
}

type locked struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *locked) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *locked) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func TestBacklogIsTold(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		var (
			log  locked
			hook told
		)
		r.say("nowhere", "", numbered("m", 3)...)
		r.say("", "", "a", "bad")
		c := quick(one(each{&broker{answer: func(msg *message.Message) error {
			if msg.UUID == "bad" {
				return errors.New("not like this")
			}
			return nil
		}}}))
		c.AlarmSize, c.AlarmAge, c.MaxAttempts, c.Hook = 2, time.Hour, 2, &hook
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		relay, stop := start(t, r.outbox, c)
		testenv.Eventually(t, "what becomes of messages is told", func() bool {
			hook.mu.Lock()
			defer hook.mu.Unlock()
			return hook.sums == [3]int{1, 1, 1} && len(hook.backlog) > 0
		})
		testenv.Eventually(t, "the alarm", func() bool { return strings.Contains(log.String(), "too many messages wait to be published") })
		stop()
		waiting := 0
		for _, count := range relay.Backlog() {
			waiting += count.N
		}
		if waiting < 3 {
			t.Errorf("the backlog is %+v", relay.Backlog())
		}
	})
}

// leaving is a hook, and its Away, that exit their goroutines.
type leaving struct{}

func (leaving) Relayed(string, int, int, int) { runtime.Goexit() }
func (leaving) Backlog([]stores.OutputCount)  { runtime.Goexit() }
func (leaving) Away(error) bool               { runtime.Goexit(); return true }

// What the program's functions do does not stop the relay, and is logged.
func TestFunctionsThatExitTheirGoroutineStopNothing(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, r *rig) {
		var log locked
		b := &broker{}
		refused := errors.New("once")
		var once sync.Once
		b.answer = func(*message.Message) (err error) {
			once.Do(func() { err = refused })
			return err
		}
		c := quick(one(each{b}))
		c.Hook, c.Away = leaving{}, leaving{}.Away
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		relay, stop := start(t, r.outbox, c)
		for _, id := range []string{"first", "second"} {
			r.say("", "", id)
			relay.Poke()
			testenv.Eventually(t, id+" is published", func() bool {
				b.mu.Lock()
				defer b.mu.Unlock()
				return slices.ContainsFunc(b.taken, func(msg *message.Message) bool { return msg.UUID == id })
			})
		}
		stop()
		for _, name := range []string{"Config.Hook", "Config.Away"} {
			if !strings.Contains(log.String(), "function="+name) {
				t.Errorf("the log says nothing of %s:\n%s", name, log.String())
			}
		}
	})
}
