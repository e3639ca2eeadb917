package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrDrainTimeout: handlers still ran after the drain timeout, although their contexts were
// canceled. End the process: their messages are not acked, and their transactions end with it.
var ErrDrainTimeout = errors.New("the drain timeout is over and handlers still run")

const (
	// drainSlack is how long Run may take beyond the drain timeout.
	drainSlack = 500 * time.Millisecond
	// rollbackTime is the end of the drain timeout, which is left for rolling back.
	rollbackTime = 2 * time.Second
)

// errOverdue cancels a handler that runs too long while the service stops. The inbox treats
// it as a shutdown, which spends no attempt.
var errOverdue = fmt.Errorf("router: the service stops and the handler has not finished in time: %w", context.Canceled)

// drain counts the running handlers and cancels their contexts.
type drain struct {
	overdue context.Context // ends when handlers must no longer run
	cutOff  context.CancelFunc

	mu      sync.Mutex
	running map[string]int // by handler
}

func newDrain() *drain {
	d := &drain{running: make(map[string]int)}
	d.overdue, d.cutOff = context.WithCancel(context.Background())
	return d
}

// handler wraps a handler. Its context is canceled when it is overdue. It is then rolled
// back even if it returns nil, because it may have hidden the errors of refused statements.
func (d *drain) handler(name string, h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx, cancel := context.WithCancelCause(msg.Context())
		defer cancel(nil)
		stop := context.AfterFunc(d.overdue, func() { cancel(errOverdue) })
		defer stop()
		d.count(name, 1)
		defer d.count(name, -1)
		msg.SetContext(ctx)
		said, err := h(msg)
		if context.Cause(ctx) != errOverdue { //nolint:errorlint // this very value
			return said, err
		}
		if err == nil {
			return nil, errOverdue
		}
		return nil, fmt.Errorf("%w: %w", errOverdue, err)
	}
}

func (d *drain) count(name string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[name] += n; d.running[name] == 0 {
		delete(d.running, name)
	}
}

// still lists the running handlers; "" if there are none.
func (d *drain) still() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for _, name := range slices.Sorted(maps.Keys(d.running)) {
		list = append(list, fmt.Sprintf("%s (%d)", name, d.running[name]))
	}
	return strings.Join(list, ", ")
}
