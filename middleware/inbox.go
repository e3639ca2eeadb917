package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/loglimit"
	"github.com/millpond-go/millpond/middleware/internal/batch"
	"github.com/millpond-go/millpond/middleware/internal/completed"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/gate"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// Store is what the inbox needs from a store.
type Store interface {
	stores.Inbox
	stores.Registry
	stores.Quarantine
	stores.Failures
}

// Inbox makes handlers transactional and their messages safe to redeliver. It is
// safe for concurrent use, by any number of handlers and routers.
type Inbox struct {
	store     Store
	config    InboxConfig
	core      *delivery.Core
	hooks     *hooks
	panics    *panicLog
	logLimit  loglimit.Limit
	handlers  handlers
	consumers *consumers
	crowds    crowds
	workers   *workers
	visits    sync.Pool // *visit
}

// NewInbox returns an inbox on the store, or all errors of the configuration at once. It does no
// I/O: consumers are registered at their first delivery, or by [Inbox.Register].
func NewInbox(store Store, c InboxConfig) (*Inbox, error) {
	err := c.Validate()
	c.setDefaults()
	if store == nil {
		err = errors.Join(errors.New("the store is nil"), err)
	}
	if _, ok := store.(stores.Outbox); c.Outputs != nil && store != nil && !ok {
		err = errors.Join(fmt.Errorf("Outputs is set, and the store, a %T, has no outbox", store), err)
	}
	if can, ok := store.(interface{ Capabilities() stores.Capabilities }); ok {
		err = errors.Join(c.unordered(store, can.Capabilities()), err)
	}
	var in *Inbox
	modes, noLeases := newModes(store, &c, func(handler string, e batch.End) { in.batchEnded(handler, e) })
	err = errors.Join(err, noLeases)
	if err != nil {
		return nil, fmt.Errorf("middleware: NewInbox: %w", err)
	}
	panics := newPanicLog(c.Logger)
	in = &Inbox{
		store: store, config: c,
		panics: panics, hooks: newHooks(c.Hooks, panics),
		handlers:  handlers{retry: newPolicy(&c.Retry), policies: newPolicies(c.RetryByHandler), modes: modes},
		consumers: newConsumers(store, c), workers: newWorkers(c.Logger),
	}
	in.core = &delivery.Core{
		Rows:        store,
		Gate:        gate.New(in.gateConfig()),
		Completed:   completed.New(c.CacheSize, c.CacheTTL),
		Keep:        c.Keep.keeper(),
		Letters:     c.DeadLetters.letters(),
		Fingerprint: c.Fingerprint.Key,
		Times: delivery.Times{
			Claim: c.ClaimTimeout, Handler: c.HandlerTimeout, Record: c.RecordTimeout,
			MinPause: c.Hold.MinPause, MaxPause: c.Hold.MaxPause,
		},
	}
	in.crowds.gate, in.crowds.suspectFor = in.core.Gate, c.SuspectFor
	in.crowds.attendances, _ = store.(stores.Attendance)
	in.crowds.purger, _ = store.(stores.Purger)
	return in, nil
}

func (in *Inbox) gateConfig() gate.Config {
	hold := in.config.Hold
	return gate.Config{
		Limit: hold.Limit, MinPause: hold.MinPause, MaxPause: hold.MaxPause, Max: hold.Max,
		Paused: func(reason error) {
			in.config.Logger.Warn("millpond: intake is paused until the store can be used", slog.String("error", text.Printable(reason)))
			in.hooks.intakePaused(reason)
		},
		Resumed: func(after time.Duration) {
			in.config.Logger.Info("millpond: intake has resumed", slog.Duration("after", after))
			in.hooks.intakeResumed(after)
		},
	}
}

// String returns the service of the inbox and the type of its store.
func (in *Inbox) String() string {
	return fmt.Sprintf("inbox of %q on %T", in.config.Service, in.store)
}

// Format implements fmt.Formatter: every verb prints what String returns, without the
// configuration and the messages in flight.
func (in *Inbox) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, in.String()) }

// Paused returns nil, or the reason why the intake is paused, such as a read-only database. The
// error wraps the store's. Paused does no I/O.
func (in *Inbox) Paused() error {
	if reason := in.core.Gate.Reason(); reason != nil {
		return fmt.Errorf("middleware: the intake is paused: %w", reason)
	}
	return nil
}

// Register registers a handler and its topic before the first delivery, so that a taken
// consumer name or a missing table is an error at start. Errors wrap those of
// stores.Registry, or ErrConsumerShared.
func (in *Inbox) Register(ctx context.Context, handler, topic string) error {
	return in.consumers.register(ctx, handler, topic)
}

// Close tells the store that this process ends in order. Call it after the router has closed, if
// a subscriber does not flag redeliveries (see docs/brokers.md). Otherwise the next process
// treats first deliveries as suspects, for [InboxConfig].SuspectFor. Close does nothing while
// deliveries are in flight. The inbox can still be used afterwards.
func (in *Inbox) Close(ctx context.Context) error {
	var errs []error
	in.crowds.byConsumer.Range(func(_, found any) bool {
		one, _ := found.(*crowd)
		errs = append(errs, one.attendance.end(ctx))
		return true
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("middleware: Close: %w", err)
	}
	return nil
}

// Middleware wraps a handler; give it to Router.AddMiddleware or, for one handler,
// Handler.AddMiddleware. Nested inside itself it does nothing. A copy of a message, and a message
// with the context of another one, is a delivery of its own. A second call with a message that is
// in flight waits until the first returns, and is a second delivery. This holds for one wrapped
// handler: do not call two handlers of an inbox at once with the same message, because the second
// call looks nested in the first.
//
// The wrapped handler returns nil, and the router then acks, in three cases only: the handler's
// effects are committed; an earlier delivery has committed them; the store keeps the message,
// parked, as a dead letter or in quarantine. An error gives the delivery back; see
// [OnlyFailures]. A panic of the handler continues as a [PanicError], after the rollback.
func (in *Inbox) Middleware(next message.HandlerFunc) message.HandlerFunc {
	in.warnOfHiding(next)
	turns := newTurns()
	return func(msg *message.Message) ([]*message.Message, error) {
		growStack(false)
		if err := turns.take(msg, in.config.Hold.Limit); err != nil {
			return nil, err
		}
		defer turns.end(msg)
		defer boundPanic()
		v, _ := in.visits.Get().(*visit)
		if v == nil {
			v = &visit{machine: new(delivery.Delivery)}
		}
		v.begin(in, msg, next)
		outputs, err := v.process()
		v.forget() // a visit that panicked is not reused
		in.visits.Put(v)
		return outputs, err
	}
}
