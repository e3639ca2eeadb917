package middleware

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// delivery is one arrival of a message on its way through the inbox.
type delivery struct {
	in      *Inbox
	msg     *message.Message
	next    message.HandlerFunc
	handler string // its name in the router
	topic   string
	facts   brokers.Delivery
	holding *holding // of the consumer

	// The message as it arrived, for the quarantine: handlers and the middlewares
	// inside change theirs.
	uuid     string
	payload  []byte
	metadata message.Metadata

	shutdown context.Context // the message's own: ends when the subscriber stops
	ctx      context.Context // detached from it: for the store, the handler and hooks

	claim    stores.Claim
	attempt  stores.Attempt // open: neither committed nor rolled back yet
	patience patience       // with the claim and its end
	wait     wait
	failures int // of the message, as far as they are known here
	begun    time.Time
	end      DeliveryEnd
}

func newDelivery(in *Inbox, msg *message.Message, next message.HandlerFunc) *delivery {
	shutdown := msg.Context()
	d := &delivery{
		in: in, msg: msg, next: next,
		shutdown: shutdown,
		ctx:      context.WithoutCancel(shutdown),
		handler:  message.HandlerNameFromCtx(shutdown),
		topic:    message.SubscribeTopicFromCtx(shutdown),
		uuid:     msg.UUID,
		payload:  msg.Payload,
		metadata: msg.Metadata,
	}
	d.facts, _ = brokers.DeliveryFrom(shutdown)
	if d.topic == "" {
		d.topic = d.facts.Topic
	}
	return d
}

// process takes the delivery from its arrival to the answer for the router.
func (d *delivery) process() ([]*message.Message, error) {
	var err error
	d.claim.Key.Consumer, err = d.in.consumers.name(d.handler, d.topic)
	d.holding = d.in.holdings.of(d.claim.Key.Consumer)
	reason, unfit := d.identify()
	if unfit == nil && d.nested() {
		return d.next(d.msg)
	}
	d.started()
	if err == nil {
		err = d.register()
	}
	switch {
	case err != nil:
		err = d.notNow(err)
	case unfit != nil:
		err = d.quarantine(reason, unfit)
	default:
		err = d.decide()
	}
	d.end.Err = errors.Join(d.end.Err, err)
	d.report()
	d.ended()
	return nil, err
}

// register sees that the consumer is registered, holding the delivery while the store
// cannot be asked.
func (d *delivery) register() error {
	for !d.in.consumers.known(d.handler, d.topic) {
		ctx, cancel := context.WithTimeout(d.ctx, d.in.config.ClaimTimeout)
		err := d.in.consumers.register(ctx, d.handler, d.topic)
		cancel()
		if err != nil && !d.hold(err) {
			return err
		}
	}
	return nil
}

// decide asks the store until it has an answer, and acts on it. nil lets the router
// ack.
func (d *delivery) decide() error {
	if d.in.completed.has(d.claim.Key, d.claim.Fingerprint) {
		d.end.Result, d.end.Outcome, d.end.Cached = ResultDuplicate, stores.Duplicate, true
		return nil
	}
	for {
		if err := d.enter(); err != nil {
			return d.notNow(err)
		}
		if err := d.register(); err != nil { // again if the tables were gone meanwhile
			return d.notNow(err)
		}
		reason, settled, err := d.tryOnce()
		if settled {
			return err
		}
		if !d.hold(reason) {
			return d.notNow(reason)
		}
	}
}

// tryOnce makes one claim and, if it is won, one attempt. If nothing was settled it
// returns the reason to hold for.
func (d *delivery) tryOnce() (reason error, settled bool, err error) {
	returned := false
	defer func() {
		defer d.patience.end()
		if !returned {
			d.abandoned(recover())
		}
	}()
	reason, settled, err = d.claimAndRun()
	returned = true
	return reason, settled, err
}

func (d *delivery) claimAndRun() (reason error, settled bool, err error) {
	verdict, err := d.begin()
	if err != nil {
		d.in.completed.flush() // the server may be another one when it is back
		if errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrNotRegistered) {
			d.in.consumers.forget()
		}
		return err, false, nil
	}
	d.end.Outcome, d.end.Verdict = verdict.Outcome, verdict
	switch verdict.Outcome {
	case stores.Claimed:
		return d.run()
	case stores.Duplicate:
		d.in.completed.add(d.claim.Key, verdict.Fingerprint)
		d.end.Result = ResultDuplicate
		if d.end.Runs > 0 { // the commit was unknown, and did happen
			d.end.Result = ResultCompleted
		}
		return nil, true, nil
	case stores.Conflict:
		return nil, true, d.quarantine(stores.ReasonConflict, fmt.Errorf("middleware: the id was used before for another message, completed at %s", verdict.CompletedAt.UTC().Format(time.RFC3339)))
	case stores.InFlight:
		return ErrInFlight, false, nil
	default:
		return fmt.Errorf("middleware: the store answered with an outcome this version does not know (%d)", verdict.Outcome), false, nil
	}
}

func (d *delivery) begin() (stores.Verdict, error) {
	ctx := d.patience.start(d.ctx, d.in.config.ClaimTimeout)
	defer d.patience.stop()
	for _, hook := range d.in.hooks.claimStart {
		ctx = hook.ClaimStart(ctx, d.claim)
	}
	var (
		verdict stores.Verdict
		err     error
	)
	d.attempt, verdict, err = d.in.store.Begin(ctx, d.claim)
	for _, hook := range d.in.hooks.claimEnd {
		hook.ClaimEnd(ctx, verdict, err)
	}
	return verdict, err
}

// identify checks the message against the limits and fills in the claim. An error
// comes with the reason for quarantine.
func (d *delivery) identify() (stores.Reason, error) {
	c := &d.in.config
	if err := d.facts.Undecodable; err != nil {
		return stores.ReasonUndecodable, err
	}
	if n := len(d.msg.Payload); n > c.Limits.Payload {
		return stores.ReasonTooLarge, fmt.Errorf("middleware: the payload has %d bytes, Limits.Payload is %d", n, c.Limits.Payload)
	}
	if n := len(d.msg.Metadata); n > c.Limits.Metadata {
		return stores.ReasonTooLarge, fmt.Errorf("middleware: the message has %d metadata fields, Limits.Metadata is %d", n, c.Limits.Metadata)
	}
	size := 0
	for name, value := range d.msg.Metadata {
		size += len(name) + len(value)
	}
	if size > c.Limits.MetadataBytes {
		return stores.ReasonTooLarge, fmt.Errorf("middleware: the metadata has %d bytes, Limits.MetadataBytes is %d", size, c.Limits.MetadataBytes)
	}
	id, source, err := d.id()
	d.claim.Key.ID, d.end.Source = id, source
	switch {
	case errors.Is(err, keys.ErrTooLong):
		return stores.ReasonKeyTooLong, err
	case err != nil:
		return stores.ReasonNoKey, fmt.Errorf("%w: looked for %s", err, c.Keys)
	}
	d.claim.Fingerprint = d.fingerprint()
	d.claim.TraceParent, _ = stores.ParseTraceParent(d.msg.Metadata.Get("traceparent"))
	d.claim.Look = d.facts.Suspect
	d.claim.Bound = c.HandlerTimeout + c.CommitTimeout
	return "", nil
}

// id asks the key chain, which may hold functions of the program.
func (d *delivery) id() (id []byte, source string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: a key function panicked: %v", keys.ErrNoKey, r)
		}
	}()
	return d.in.config.Keys.ID(d.msg, d.in.config.Limits.ID)
}

func (d *delivery) fingerprint() stores.Fingerprint {
	c := &d.in.config.Fingerprint
	if c.Off {
		return stores.Fingerprint{}
	}
	var headers []stores.Header
	for _, name := range c.Headers {
		headers = append(headers, stores.Header{Name: name, Value: d.metadata.Get(name)})
	}
	return stores.NewFingerprint(c.Key, d.payload, headers...)
}

// quarantine keeps the whole message, so that it may be acked. Until that is done it
// is held; a message that cannot be kept goes back to the broker.
func (d *delivery) quarantine(reason stores.Reason, cause error) error {
	for {
		err := d.keep(reason, cause)
		if err == nil {
			return nil
		}
		if !d.hold(err) {
			return d.notNow(err)
		}
	}
}

// keep tries once to put the message into quarantine, as it arrived.
func (d *delivery) keep(reason stores.Reason, cause error) error {
	q := stores.Quarantined{
		Consumer:    d.claim.Key.Consumer,
		ID:          d.claim.Key.ID,
		Reason:      reason,
		Detail:      cause.Error(),
		Fingerprint: d.claim.Fingerprint,
		Topic:       d.topic,
		Coordinates: d.facts.Coordinates,
		UUID:        d.uuid,
		Metadata:    d.metadata,
		Payload:     d.payload,
	}
	if q.Fingerprint == (stores.Fingerprint{}) {
		q.Fingerprint = stores.NewFingerprint(d.in.config.Fingerprint.Key, d.payload)
	} else if d.end.Runs > 0 && d.fingerprint() != q.Fingerprint {
		q.Detail += " (the handler has changed the payload in place: it is not what arrived)"
	}
	if reason == stores.ReasonConflict {
		q.Existing = d.end.Verdict.Fingerprint
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.in.config.HandlerTimeout)
	defer cancel()
	if err := d.in.store.Quarantine(ctx, q); err != nil {
		return fmt.Errorf("middleware: cannot keep the message in quarantine (%s): %w", reason, err)
	}
	d.end.Result, d.end.Reason, d.end.Err = ResultQuarantined, reason, cause
	return nil
}

// notNow gives the delivery back without counting it as failed. If the handler has
// acked the message nobody will deliver it again, so it is kept.
func (d *delivery) notNow(cause error) error {
	if d.end.Runs > 0 && d.acked() {
		err := d.keep(stores.ReasonAckedEarly, fmt.Errorf("%w: %w", ErrAckedEarly, cause))
		if err == nil {
			return nil
		}
		cause = errors.Join(ErrAckedEarly, cause, err)
	}
	d.end.Result = ResultNotNow
	brokers.SetGiveBack(d.shutdown, brokers.GiveBack{After: d.wait.pause})
	return &notNowError{cause: cause, held: d.wait.held()}
}

// running is the context of a handler's run. What derives from it is inside an attempt.
type running struct {
	context.Context //nolint:containedctx // it is one

	inbox *Inbox
	key   stores.Key
	over  atomic.Bool
}

type runningKey struct{}

// Value implements context.Context.
func (r *running) Value(key any) any {
	if key == (runningKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// nested reports whether this delivery is already being run by an inbox around this
// one. A context can outlive its attempt (a message published with it), so the
// attempt must still be running.
func (d *delivery) nested() bool {
	outer, ok := d.shutdown.Value(runningKey{}).(*running)
	return ok && !outer.over.Load() && sameStore(outer.inbox.store, d.in.store) &&
		outer.key.Consumer == d.claim.Key.Consumer && bytes.Equal(outer.key.ID, d.claim.Key.ID)
}

func sameStore(a, b Store) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && t.Comparable() && a == b
}
