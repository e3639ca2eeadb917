package middleware

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/gate"
	"github.com/millpond-go/millpond/middleware/internal/panics"
	"github.com/millpond-go/millpond/stores"
)

// visit is one call of the inbox with a Watermill message. It tells the delivery's machine about
// router, handler and hooks.
type visit struct {
	in      *Inbox
	msg     *message.Message
	next    message.HandlerFunc
	handler string // its name in the router
	was     snapshot
	facts   stores.Facts // facts of the delivery, to be kept
	outer   *running     // the run in the context, of this message or another
	retry   *retryRun    // nil for a delivery of the broker
	crowd   *crowd       // the consumer's
	diary   diary
	arrival delivery.Arrival
	machine *delivery.Delivery
}

// crowd is what all deliveries of a consumer share.
type crowd struct {
	lane       *gate.Lane
	introduced atomic.Bool // its subscriber was checked
	firsts     firsts
	repeats    delivery.Repeats
	attendance attendance // for a subscriber that does not flag redeliveries
	ages       ages
}

// crowds has the crowds of an inbox.
type crowds struct {
	gate        *gate.Gate
	attendances stores.Attendance // nil: the store has no attendance
	suspectFor  time.Duration
	purger      stores.Purger // nil: the store is no Purger
	byConsumer  sync.Map      // stores.Consumer → *crowd
}

func (c *crowds) of(consumer stores.Consumer) *crowd {
	found, ok := c.byConsumer.Load(consumer)
	if !ok {
		found, _ = c.byConsumer.LoadOrStore(consumer, &crowd{
			lane: c.gate.Lane(), attendance: attendance{store: c.attendances, consumer: consumer, fear: c.suspectFor},
			ages: ages{store: c.purger, consumer: consumer},
		})
	}
	one, _ := found.(*crowd)
	return one
}

// diary collects what hooks and log need to know about one delivery.
type diary struct {
	begun  time.Time
	source string // the link of the key chain that found the id
	held   error  // why it was held last
	said   bool   // the last run of the handler has published something
	told   bool   // hooks and log know how it ended
}

// begin takes a new message.
func (v *visit) begin(in *Inbox, msg *message.Message, next message.HandlerFunc) {
	shutdown, outer := ownContext(msg.Context(), msg)
	v.in, v.msg, v.next, v.outer = in, msg, next, outer
	v.handler = message.HandlerNameFromCtx(shutdown)
	v.was.take(msg)
	v.retry = in.workers.runOf(msg)
	facts, known := brokers.DeliveryOf(msg)
	v.facts = stores.Facts{Key: facts.Key, NativeID: facts.NativeID, Time: facts.Time}
	if v.retry != nil {
		v.facts.RanAs = v.retry.Row.Content.Facts.RanAs
	}
	a := &v.arrival
	a.Contexts = delivery.Contexts{Shutdown: shutdown, Detached: context.WithoutCancel(shutdown)}
	v.aim()
	a.Consumer, a.Handler, a.Observer = v, v, v
	a.Payload = msg.Payload
	a.Policy, a.Mode = &in.handlers.policy(v.handler).machine, in.handlers.modes.of(v.handler)
	a.Origin = delivery.Origin{Topic: message.SubscribeTopicFromCtx(shutdown), Coordinates: facts.Coordinates, Count: facts.Count, Silent: !known}
	if a.Origin.Topic == "" {
		a.Origin.Topic = facts.Topic
	}
	if facts.Undecodable != nil {
		a.Unfit = &delivery.Unfit{Reason: stores.ReasonUndecodable, Err: facts.Undecodable}
	}
	a.Suspect = facts.Suspect
	if v.retry != nil {
		row := &v.retry.Row
		a.Retry, a.Suspect, a.Unfit = &v.retry.Retry, row.Suspect || row.State.Presumed, nil
	}
}

// forget makes the visit ready for another message. A visit is a few times as large as all other
// allocations of a delivery, and nothing refers to it after the delivery.
func (v *visit) forget() {
	v.machine.Forget()
	v.was.forget()
	machine, was := v.machine, v.was
	*v = visit{}
	v.machine, v.was = machine, was
}

// Suspects implements delivery.Consumer.
func (v *visit) Suspects() bool { return v.silent() && v.crowd.attendance.fears() }

// Repeats implements delivery.Consumer.
func (v *visit) Repeats() *delivery.Repeats { return &v.crowd.repeats }

// silent reports whether the message's subscriber does not flag redeliveries.
func (v *visit) silent() bool {
	return v.arrival.Origin.Silent && v.retry == nil && v.arrival.Unfit == nil
}

// process takes the message from its arrival to the result for the router.
func (v *visit) process() ([]*message.Message, error) {
	returned := false
	defer func() {
		if !returned {
			v.endEarly(recover())
		}
	}()
	a := &v.arrival
	consumer, err := v.in.consumers.name(v.handler, a.Origin.Topic)
	a.Claim.Key.Consumer = consumer
	v.identify()
	switch {
	case err != nil: // it counts towards no consumer's limits
		a.Unfit, consumer = &delivery.Unfit{Err: err}, stores.Consumer{}
	case a.Unfit == nil && v.nested():
		returned = true // for this inbox
		return v.next(v.msg)
	}
	v.crowd = v.in.crowds.of(consumer)
	if v.silent() {
		v.crowd.attendance.enter()
		defer v.crowd.attendance.leave()
	}
	v.warnOfSubscriber()
	v.started()
	v.crowd.ages.note(a.Contexts.Detached, a.Claim.Time, v.in.config.ClaimTimeout)
	end := v.machine.Process(v.in.core, a, v.crowd.lane)
	v.over(end)
	returned = true
	return nil, goUp(end.Up)
}

// endEarly ends a delivery whose code panicked or exited its goroutine. A panic goes on up.
// recovered is nil after runtime.Goexit; then only endEarly can settle the message.
func (v *visit) endEarly(recovered any) {
	end := v.machine.End()
	if end.Result == "" { // the machine had not begun
		end.Result, end.Err = delivery.Panicked, delivery.ErrEndedEarly
		if recovered != nil {
			end.Err = panics.CauseError{Panic: newPanicError(recovered).panic}
		}
	}
	exited := recovered == nil
	defer func() {
		if v.retry != nil {
			v.retry.ended(v.deliveryEnd(end))
		}
		if exited {
			v.msg.Nack()
			return
		}
		panic(newPanicError(recovered))
	}()
	if !v.diary.told {
		was := exited
		exited = true // over did not return: a hook exited the goroutine
		v.over(end)
		exited = was
	}
}

// over tells hooks, log and workers how the delivery ended, before the message is settled.
func (v *visit) over(end *delivery.End) {
	v.diary.told = true
	if end.Up != nil {
		end.Err = errors.Join(end.Err, end.Up)
		brokers.SetGiveBack(v.msg, brokers.GiveBack{Failed: end.Back.Failed, After: end.Back.After})
	}
	if end.Unfinished {
		brokers.SetUnfinished(v.msg)
	}
	v.report(end)
	if end.Result != delivery.Panicked {
		v.noteFirst(end)
	}
	v.ended(end)
	if v.retry != nil {
		v.retry.ended(v.deliveryEnd(end))
	}
}

// Known implements delivery.Consumer.
func (v *visit) Known() bool {
	return v.in.consumers.known(v.handler, v.claimsTopic()) && (!v.silent() || v.crowd.attendance.attends())
}

// Register implements delivery.Consumer.
func (v *visit) Register(ctx context.Context) error {
	if !v.in.consumers.known(v.handler, v.claimsTopic()) {
		if err := v.in.consumers.register(ctx, v.handler, v.claimsTopic()); err != nil {
			return err
		}
	}
	if !v.silent() {
		return nil
	}
	if err := v.crowd.attendance.attend(ctx); err != nil {
		if errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrNotRegistered) {
			v.Forget()
		}
		return fmt.Errorf("middleware: attend for %s: %w", v.arrival.Claim.Key.Consumer, err)
	}
	return nil
}

// Forget implements delivery.Consumer.
func (v *visit) Forget() { v.in.consumers.forget() }

// RegisterAgain implements delivery.Consumer.
func (v *visit) RegisterAgain(ctx context.Context) error { return v.in.serverChanged(ctx) }

// claimsTopic returns the topic that the consumer reads. A retry has none: its row says where the
// message came from, perhaps a topic that the handler no longer reads.
func (v *visit) claimsTopic() string {
	if v.retry != nil {
		return ""
	}
	return v.arrival.Origin.Topic
}
