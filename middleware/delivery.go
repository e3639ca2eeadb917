package middleware

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
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

	// The message as it came to the inbox: handlers and the middlewares inside change
	// theirs. What is kept is its origin.
	uuid     string
	payload  []byte
	metadata message.Metadata

	shutdown context.Context // the message's own: ends when the subscriber stops
	ctx      context.Context // detached from it: for the store, the handler and hooks
	outer    *running        // the run that the context comes from, of this message or another

	policy   *RetryPolicy
	retry    *retryRun // nil for a delivery of the broker
	claim    stores.Claim
	attempt  stores.Attempt // open: neither committed nor rolled back yet
	patience patience       // with the claim and its end
	wait     wait
	asking   bool // its turn to ask while the intake is paused

	// What is known of earlier failures, and of this delivery's part in them.
	suspect       bool
	state         stores.FailureState // as it was seen last
	counted       int64               // the version in which an attempt was counted before it began; 0: none
	tried         int                 // the number that a start has, if it is on record without an answer
	spent         bool                // the last attempt is counted, and has ended its process
	mayCrash      bool                // it had not ended in any known way when it was seen first, so it runs alone
	alone         bool                // holds in.alone
	interruptions int                 // attempts that the database has ended
	immediate     int                 // repetitions after concurrency conflicts
	unrecorded    int                 // failures that could not be recorded, because the row was changed
	awaited       bool                // the end of the failed attempt at the server
	tooLarge      bool                // the store cannot keep the content
	refused       refused             // by a codec, or the publisher of dead letters
	unsure        bool                // the last commit had an unknown outcome

	begun time.Time
	end   DeliveryEnd
}

func newDelivery(in *Inbox, msg *message.Message, next message.HandlerFunc) *delivery {
	shutdown, outer := ownContext(msg.Context(), msg)
	d := &delivery{
		in: in, msg: msg, next: next,
		shutdown: shutdown,
		ctx:      context.WithoutCancel(shutdown),
		outer:    outer,
		handler:  message.HandlerNameFromCtx(shutdown),
		topic:    message.SubscribeTopicFromCtx(shutdown),
		uuid:     msg.UUID,
		payload:  msg.Payload,
		metadata: msg.Metadata,
	}
	var known bool
	d.facts, known = brokers.DeliveryOf(msg)
	if d.topic == "" {
		d.topic = d.facts.Topic
	}
	d.policy = in.policy(d.handler)
	d.retry = in.workers.runOf(msg)
	switch {
	case d.retry != nil:
		d.suspect = d.retry.Suspect || d.retry.State.Presumed
		d.state = d.retry.State
		d.end.Retry = true
	case known:
		d.suspect = d.facts.Suspect
	default:
		d.suspect = in.newcomers.among(stores.Consumer{Service: in.config.Service, Handler: d.handler})
	}
	return d
}

// process takes the delivery from its arrival to the answer for the router.
func (d *delivery) process() ([]*message.Message, error) {
	defer boundPanic()
	over := false
	defer func() {
		if !over {
			d.endedEarly(recover())
		}
	}()
	defer d.stopAsking()
	var err error
	d.claim.Key.Consumer, err = d.in.consumers.name(d.handler, d.topic)
	d.holding = d.in.holdings.of(d.claim.Key.Consumer)
	reason, unfit := d.identify()
	if unfit == nil && d.nested() {
		over = true // for this inbox
		return d.next(d.msg)
	}
	d.warnOfSubscriber()
	d.started()
	if err == nil {
		err = d.register()
	} else {
		d.holdNameless(err)
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
	d.noteFirst()
	d.ended()
	d.retry.ended(d.end)
	over = true
	return nil, goUp(err)
}

// endedEarly lets go of a delivery that somebody's function has ended without an answer. A
// panic goes on up; recovered is nil after runtime.Goexit, after which nobody else settles
// the message.
func (d *delivery) endedEarly(recovered any) {
	if d.end.Result == "" { // nobody has said how it has ended
		d.end.Result, d.end.Err = ResultPanicked, errEndedEarly
		if recovered != nil {
			d.end.Err = panicked{newPanicError(recovered)}
		}
		d.report()
		if !d.begun.IsZero() {
			d.ended()
		}
	}
	d.retry.ended(d.end)
	if recovered == nil {
		d.msg.Nack()
		return
	}
	panic(recovered)
}

var errEndedEarly = errors.New("middleware: a function of the program has exited its goroutine (runtime.Goexit)")

// register sees that the consumer is registered, holding the delivery while the store
// cannot be asked. A retry claims no topic: its row tells where the message came from,
// perhaps from one that the handler has left.
func (d *delivery) register() error {
	topic := d.topic
	if d.retry != nil {
		topic = ""
	}
	for !d.in.consumers.known(d.handler, topic) {
		ctx, cancel := context.WithTimeout(d.ctx, d.in.config.ClaimTimeout)
		err := d.in.consumers.register(ctx, d.handler, topic)
		cancel()
		if err == nil {
			d.answered()
		} else if !d.hold(err) {
			return err
		}
	}
	return nil
}

// decide asks the store until it has an answer, and acts on it. nil lets the router
// ack.
func (d *delivery) decide() error {
	if d.retry == nil {
		if trace, ok := d.in.completed.lookup(d.claim.Key, d.claim.Fingerprint); ok {
			d.end.Result, d.end.Outcome, d.end.Cached = ResultDuplicate, stores.Duplicate, true
			d.end.Verdict.Outcome, d.end.Verdict.TraceParent = stores.Duplicate, trace
			return nil
		}
	}
	for {
		if err := d.enter(); err != nil {
			return d.notNow(err)
		}
		if err := d.register(); err != nil { // again if the tables were gone meanwhile
			return d.notNow(err)
		}
		reason, settled, err := d.tryOnce()
		switch {
		case settled:
			return err
		case errors.Is(reason, errContention):
			continue
		case !d.hold(reason):
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
		defer d.leaveAlone()
		if !returned {
			d.abandoned(recover())
		}
	}()
	reason, settled, err = d.claimAndRun()
	returned = true
	return reason, settled, err
}

func (d *delivery) claimAndRun() (reason error, settled bool, err error) {
	if d.retry.uncopied() { // it has failed for good, only its copy is missing
		return d.failed(errUncopied, d.state.Class)
	}
	if d.retry != nil && d.retry.unreadable != nil {
		return d.failed(d.retry.unreadable, stores.ClassUnreadable)
	}
	if d.suspect {
		answer, reason, settled, err := d.countFirst()
		if answer {
			return reason, settled, err
		}
	}
	verdict, err := d.begin()
	if err != nil {
		return d.unanswered(err), false, nil
	}
	d.answered()
	return d.act(verdict)
}

// unanswered notes that the store could not answer, and returns why.
func (d *delivery) unanswered(err error) error {
	if doubtsServer(err) {
		d.in.completed.flush()
	}
	if errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrNotRegistered) {
		d.in.consumers.forget()
	}
	return err
}

// act does what the store's answer asks for.
func (d *delivery) act(verdict stores.Verdict) (reason error, settled bool, err error) {
	d.end.Outcome, d.end.Verdict = verdict.Outcome, verdict
	switch verdict.Outcome {
	case stores.Claimed:
		return d.runClaimed(verdict.Failure)
	case stores.Duplicate:
		d.in.completed.add(d.claim.Key, verdict.Fingerprint, verdict.TraceParent)
		d.end.Result = ResultDuplicate
		if d.unsure { // the commit was unknown, and did happen
			d.end.Result = ResultCompleted
		}
		return nil, true, nil
	case stores.Parked:
		d.end.Result = ResultParked
		return nil, true, nil
	case stores.Final:
		return d.finalBefore(verdict.Failure)
	case stores.Deferred:
		if verdict.Failure.Presumed {
			return errBegun, false, nil // over soon, if its process lives
		}
		return d.untilDue(verdict.Failure.DueIn)
	case stores.Behind:
		return d.parkBehind()
	case stores.Conflict:
		return nil, true, d.quarantine(stores.ReasonConflict, conflicts(verdict))
	case stores.InFlight:
		return ErrInFlight, false, nil
	case stores.Claimable:
		fallthrough // an answer of Look alone
	default:
		return fmt.Errorf("middleware: the store answered with an outcome this version does not know (%d)", verdict.Outcome), false, nil
	}
}

func conflicts(v stores.Verdict) error {
	if v.CompletedAt.IsZero() || v.Failure.Version != 0 {
		return errors.New("middleware: the id was used before for another message, which has failed")
	}
	return fmt.Errorf("middleware: the id was used before for another message, completed at %s", v.CompletedAt.UTC().Format(time.RFC3339))
}

func (d *delivery) begin() (stores.Verdict, error) {
	ctx := d.patience.start(d.ctx, d.in.config.ClaimTimeout)
	ctx = d.in.hooks.claimStarts(ctx, d.claim)
	var (
		verdict stores.Verdict
		err     error
	)
	d.attempt, verdict, err = d.in.store.Begin(ctx, d.claim)
	err = d.patience.stop("ClaimTimeout", err)
	d.in.hooks.claimEnds(ctx, verdict, err)
	return verdict, err
}

// identify checks the message against the limits and fills in the claim. An error
// comes with the reason for quarantine.
func (d *delivery) identify() (stores.Reason, error) {
	c := &d.in.config
	d.claim.Bound = c.HandlerTimeout + c.CommitTimeout
	if r := d.retry; r != nil {
		d.claim.Key.ID, d.claim.Fingerprint, d.claim.TraceParent = r.Key.ID, r.Fingerprint, r.TraceParent
		d.claim.Take = r.State.Version
		r.arrived = d.fingerprint()
		return "", nil
	}
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
	d.claim.OrderKey = d.orderKey()
	return "", nil
}

// id asks the key chain, which may hold functions of the program.
func (d *delivery) id() (id []byte, source string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: a key function panicked: %s", keys.ErrNoKey, panicText(r))
		}
	}()
	return d.in.config.Keys.ID(d.msg, d.in.config.Limits.ID)
}

// orderKey asks the program's function. One that panics has no answer. Long keys are
// kept as their hash: brokers allow keys that no index takes.
func (d *delivery) orderKey() (key []byte) {
	if d.policy.OrderKey == nil {
		return nil
	}
	d.in.panics.note("RetryPolicy.OrderKey", d.claim.Key, callback.Call("it", func() error {
		key = d.policy.OrderKey(d.msg)
		return nil
	}))
	if len(key) > stores.MaxOrderKeyBytes {
		sum := sha256.Sum256(key)
		key = append([]byte("sha256:"), sum[:]...)
	}
	return key
}
