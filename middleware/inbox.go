package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// Store is what the inbox needs of a store.
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
	resolver  stores.Resolver // nil if the store is none
	config    InboxConfig
	hooks     *hooks
	panics    *panics
	log       *slog.Logger
	logLimit  logLimit
	policies  map[string]*RetryPolicy // of handlers that have their own
	consumers *consumers
	completed *completedCache
	holdings  *holdings
	intake    *intake
	newcomers *newcomers
	canceled  *cancellations
	workers   *workers
	alone     chan struct{} // full while a message runs that may have ended a process
}

// NewInbox checks the configuration, all of it at once, and returns an inbox on the
// store. It does no I/O: consumers are registered with their first delivery, or by
// [Inbox.Register].
func NewInbox(store Store, c InboxConfig) (*Inbox, error) {
	c.setDefaults()
	err := c.validate()
	if store == nil {
		err = errors.Join(errors.New("the store is nil"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("middleware: NewInbox: %w", err)
	}
	panics := newPanics(c.Logger)
	in := &Inbox{
		store:     store,
		panics:    panics,
		config:    c,
		hooks:     newHooks(c.Hooks, panics),
		log:       c.Logger,
		policies:  make(map[string]*RetryPolicy),
		consumers: newConsumers(store, c),
		completed: newCompletedCache(c.CacheSize, c.CacheTTL),
		holdings:  newHoldings(c.Hold.Max),
		newcomers: newNewcomers(),
		canceled:  newCancellations(),
		workers:   newWorkers(c.Logger),
		alone:     make(chan struct{}, 1),
	}
	in.intake = newIntake(c.Logger, in.hooks, c.Hold)
	for handler, policy := range c.RetryByHandler {
		in.policies[handler] = &policy
	}
	in.resolver, _ = store.(stores.Resolver)
	return in, nil
}

// String says whose inbox it is.
func (in *Inbox) String() string {
	return fmt.Sprintf("inbox of %q on %T", in.config.Service, in.store)
}

// Format implements fmt.Formatter: every verb prints what String returns, and nothing of
// what the inbox was configured with or is at work on.
func (in *Inbox) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, in.String()) }

// Paused returns why the intake is paused, such as a database that is read-only and
// answers everything but a claim; nil if it is not. The error wraps the store's. It is safe
// for concurrent use and asks nobody.
func (in *Inbox) Paused() error {
	if reason := in.intake.reason(); reason != nil {
		return fmt.Errorf("middleware: the intake is paused: %w", reason)
	}
	return nil
}

// Register registers a handler and its topic now instead of with its first
// delivery, so that a taken consumer name or a missing table is an error at start.
// Errors are those of stores.Registry, and ErrConsumerShared.
func (in *Inbox) Register(ctx context.Context, handler, topic string) error {
	return in.consumers.register(ctx, handler, topic)
}

// Middleware wraps a handler; give it to Router.AddMiddleware or, for one handler,
// Handler.AddMiddleware. Nested inside itself it does nothing. A message that comes with
// the context of another is a delivery of its own; so is a copy. Called again with a
// message that it is still at work on, the wrapped handler waits for that, as a delivery
// that is held does, and is then a second delivery.
//
// The wrapped handler returns nil, and the router then acks, only if the handler's
// effects are committed, were committed by an earlier delivery, or the message has
// failed and is kept in the store: parked, as a dead letter, or in quarantine. Every
// other error gives the delivery back; see [OnlyFailures] for telling them apart. A panic
// of the handler goes on up as a [PanicError], after the rollback.
func (in *Inbox) Middleware(next message.HandlerFunc) message.HandlerFunc {
	turns := newTurns()
	return func(msg *message.Message) ([]*message.Message, error) {
		growStack(false)
		if err := turns.take(msg, in.config.Hold.Limit); err != nil {
			return nil, err
		}
		defer turns.end(msg)
		d := newDelivery(in, msg, next)
		return d.process()
	}
}

// policy returns the retry policy of a handler.
func (in *Inbox) policy(handler string) *RetryPolicy {
	if policy, ok := in.policies[handler]; ok {
		return policy
	}
	return &in.config.Retry
}
