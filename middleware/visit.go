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

// visit is one call of the inbox with a message of Watermill's: it is what the delivery's
// machine knows of router, handler and hooks.
type visit struct {
	in      *Inbox
	msg     *message.Message
	next    message.HandlerFunc
	handler string // its name in the router
	was     snapshot
	facts   stores.Facts // of the delivery, to be kept
	outer   *running     // the run that the context comes from, of this message or another
	retry   *retryRun    // nil for a delivery of the broker
	crowd   *crowd       // the consumer's
	diary   diary
	arrival delivery.Arrival
	machine delivery.Delivery
}

// crowd is what is known of all deliveries of a consumer.
type crowd struct {
	lane       *gate.Lane
	introduced atomic.Bool // its subscriber was looked at
	firsts     firsts
	attendance attendance // of a subscriber that does not tell redeliveries apart
	ages       ages
}

// crowds are those of an inbox.
type crowds struct {
	gate *gate.Gate
	at   stores.Attendance // nil: the store keeps none
	fear time.Duration
	aged stores.Purger // nil: the store is none
	by   sync.Map      // stores.Consumer → *crowd
}

func (c *crowds) of(consumer stores.Consumer) *crowd {
	found, ok := c.by.Load(consumer)
	if !ok {
		found, _ = c.by.LoadOrStore(consumer, &crowd{
			lane: c.gate.Lane(), attendance: attendance{store: c.at, consumer: consumer, fear: c.fear},
			ages: ages{store: c.aged, consumer: consumer},
		})
	}
	one, _ := found.(*crowd)
	return one
}

// diary is what is noted of one delivery for hooks and the log.
type diary struct {
	begun  time.Time
	source string // the link of the key chain that found the id
	held   error  // why it was held last
	said   bool   // the handler has published something, in its last run
	told   bool   // everybody knows how it has ended
}

// begin takes the message as it comes.
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
	if v.retry != nil {
		a.Retry = &v.retry.Retry
	}
}

// forget makes the visit ready for another message. It is a few times as large as all else
// that a delivery allocates, and nothing refers to it when the delivery is over.
func (v *visit) forget() {
	v.machine.Forget()
	v.was.forget()
	*v = visit{machine: v.machine, was: v.was}
}

// suspect reports whether the message's last attempt may have ended a process.
func (v *visit) suspect() bool {
	if v.retry != nil {
		row := &v.retry.Row
		return row.Suspect || row.State.Presumed
	}
	facts, _ := brokers.DeliveryOf(v.msg)
	return facts.Suspect
}

// Suspects implements delivery.Consumer.
func (v *visit) Suspects() bool { return v.silent() && v.crowd.attendance.fears() }

// silent reports whether the message's subscriber does not tell redeliveries apart.
func (v *visit) silent() bool {
	return v.arrival.Origin.Silent && v.retry == nil && v.arrival.Unfit == nil
}

// process takes the message from its arrival to the answer for the router.
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
	case err != nil: // it takes the place of no consumer's messages
		a.Unfit, consumer = &delivery.Unfit{Err: err}, stores.Consumer{}
	case a.Unfit == nil && v.nested():
		returned = true // for this inbox
		return v.next(v.msg)
	}
	v.crowd = v.in.crowds.of(consumer)
	a.Suspect = v.suspect()
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

// endEarly lets go of a delivery that somebody's function has ended without an answer. A
// panic goes on up; recovered is nil after runtime.Goexit, after which nobody else settles
// the message.
func (v *visit) endEarly(recovered any) {
	end := v.machine.End()
	if end.Result == "" { // before the machine began
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
		exited = true // by a hook, if over does not return
		v.over(end)
		exited = was
	}
}

// over tells everybody how the delivery has ended, before the message is settled.
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

// claimsTopic is the topic that the consumer reads. A retry claims none: its row tells
// where the message came from, perhaps from one that the handler has left.
func (v *visit) claimsTopic() string {
	if v.retry != nil {
		return ""
	}
	return v.arrival.Origin.Topic
}
