package middleware

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/leased"
	"github.com/millpond-go/millpond/middleware/internal/batch"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/stores"
)

// LeaseConfig configures the lease under which a handler runs. Zero values mean the defaults of
// their tags.
//
// A lease is claimed in a transaction of its own, renewed while the handler runs, and ended by
// the transaction that completes the message; see [OnComplete]. One delivery at a time holds it.
// The handler's effect happens at least once: pass [IdempotencyKey] on with it.
type LeaseConfig struct {
	// TTL is also how long a message waits after its process has died. The lease is renewed three
	// times per TTL, up to HandlerTimeout.
	TTL time.Duration `config:"ttl" default:"30s" check:"positive" about:"How long a lease lives without renewal."`

	// AfterCrash says what becomes of a message after an attempt with an unknown end: the process
	// died, the handler panicked or timed out, or the completion could not be written.
	AfterCrash AfterCrash `config:"after_crash" default:"retry" check:"retry|stop" about:"What becomes of a message whose effect may have happened: retry with the same idempotency key, or stop for an operator."`

	// KeyLifetime is how long the receiver of the idempotency key remembers it. If the next
	// attempt could end later than that, counted from the first attempt, the message has failed
	// as unconfirmed.
	KeyLifetime time.Duration `config:"key_lifetime" default:"24h" check:"off" about:"How long the receiver of the idempotency key remembers it. After that a message whose effect may have happened is not run again. -1: for ever."`
}

// AfterCrash says whether to repeat an effect that may have happened.
type AfterCrash string

const (
	CrashRetry AfterCrash = "retry" // run again with the same idempotency key
	CrashStop  AfterCrash = "stop"  // the message has failed, with stores.ClassUnconfirmed
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *AfterCrash) UnmarshalText(text []byte) error {
	switch v := AfterCrash(text); v {
	case CrashRetry, CrashStop:
		*a = v
		return nil
	}
	return errors.New("use retry or stop")
}

func (l LeaseConfig) validate(name string, c *InboxConfig, bad func(name, format string, args ...any)) {
	whole := *c
	field.SetDefaults(&whole)
	field.SetDefaults(&l)
	if l.KeyLifetime > 0 && l.KeyLifetime <= whole.HandlerTimeout {
		bad(name+".KeyLifetime", "is %s, and HandlerTimeout is %s: no attempt but the first would be made. Use more, or -1", l.KeyLifetime, whole.HandlerTimeout)
	}
	if l.TTL > 0 && whole.Hold.Limit < l.TTL {
		bad(name+".TTL", "is %s, and Hold.Limit is %s: a redelivery could not wait for the end of a dead process's lease. Use a shorter TTL or a longer Hold.Limit", l.TTL, whole.Hold.Limit)
	}
}

// modes are the ways in which the handlers of an inbox are executed.
type modes struct {
	usual   execute.Mode
	own     map[string]execute.Mode
	batches map[string]*batch.Collector // of those that share transactions
	bounds  execute.Bounds
}

func newModes(store Store, c *InboxConfig, told func(handler string, e batch.End)) (modes, error) {
	if store == nil {
		return modes{}, nil
	}
	bounds := execute.Bounds{Claim: c.ClaimTimeout, Commit: c.CommitTimeout}
	m := modes{usual: execute.InTransactions(store, bounds), own: make(map[string]execute.Mode), bounds: bounds}
	if err := m.addBatches(store, c, told); err != nil {
		return m, err
	}
	leases, ok := store.(stores.LeaseInbox)
	if !ok && len(c.LeaseByHandler) > 0 {
		return m, fmt.Errorf("LeaseByHandler is set, and the store, a %T, has no leases: it is no stores.LeaseInbox", store)
	}
	for handler, l := range c.LeaseByHandler {
		m.own[handler] = execute.UnderLeases(leases, bounds, execute.Terms{
			TTL: l.TTL, Stop: l.AfterCrash == CrashStop, KeyLifetime: l.KeyLifetime,
		})
	}
	if fixed, ok := m.own[c.Handler]; ok {
		m.usual = fixed
	}
	return m, nil
}

func (m *modes) of(handler string) execute.Mode {
	if own, ok := m.own[handler]; ok {
		return own
	}
	return m.usual
}

// IdempotencyKey returns the key that a handler under a lease passes on with its effect. It is
// the same on every attempt and different for each message and consumer. It is derived from the
// service, the handler's registered name (see InboxConfig.Renamed), the message id and, inside
// [Once], the step's name. A message released from quarantine has the key of the id under which
// it may have run before; another message under a used id has a key of its own. IdempotencyKey
// reports false without a lease.
func IdempotencyKey(ctx context.Context) (key string, ok bool) {
	run, ok := leased.Of(ctx)
	if !ok {
		return "", false
	}
	r := runningIn(ctx)
	parts := [][]byte{[]byte(r.key.Consumer.Service), []byte(r.key.Consumer.Handler), r.key.ID}
	if r.ranAs != nil {
		parts[2] = r.ranAs
	}
	if step, in := run.(*stepRun); in {
		parts = append(parts, []byte(step.name))
	}
	return idempotencyKey(parts), true
}

func idempotencyKey(parts [][]byte) string {
	const size = 16
	h := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil)[:size])
}

// Attempt returns the number of the running attempt, from 1. Attempts without a record are not
// counted, such as those of a handler in a transaction whose process died. It returns 0 without
// an inbox around the handler.
func Attempt(ctx context.Context) int {
	if r := runningIn(ctx); r != nil {
		return r.number
	}
	return 0
}

// OnComplete lets f run in the transaction that completes the message, after the handler under a
// lease has returned nil. The context of f has the transaction, as TxFromContext of the store's
// package returns it; what f writes is committed with the completion, or not at all. While the
// lease lives a failed completion is tried again, with f and without the handler. f must not have
// effects outside the transaction. Without a lease the error wraps stores.ErrNoLease.
//
// The store's package has a typed form, such as postgres.Lease.
func OnComplete(ctx context.Context, f func(ctx context.Context) error) error {
	run, ok := leased.Of(ctx)
	if !ok {
		return fmt.Errorf("middleware: %w", stores.ErrNoLease)
	}
	return run.OnComplete(f) //nolint:wrapcheck // it is ours
}
