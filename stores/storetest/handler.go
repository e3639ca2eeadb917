package storetest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermill "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Handlers whose conduct takes neither SQL nor a driver.
func handlerChecks() []check {
	return []check{
		{name: "honest", run: func(b *bench) { b.tell("honest", misconduct{want: mustCommit}) }},
		{name: "run twice in one transaction", run: runTwice},
		{name: "a Retry inside the inbox", run: retryInside},
		{name: "an inbox inside the inbox", run: nestedInbox},
		{name: "a middleware inside the inbox hides its failure", run: failureHidden},
		{name: "panics", run: func(b *bench) { b.leaves("panics", panics) }},
		{name: "exits its goroutine", run: func(b *bench) { b.leaves("exits", exits) }},
		{name: "acks its message", run: acksEarly},
		{name: "nacks its message", run: nacksItself},
		{name: "outlives its deadline", run: outlivesDeadline},
		{name: "leaves a goroutine that writes later", run: writesLater},
		{name: "without an attempt", run: withoutAttempt},
		{name: "while the subscriber shuts down", run: shutdownMeanwhile},
	}
}

// twice calls the handler a second time in its first delivery, whatever became of the
// first call, and hides what the second returns.
func twice(h message.HandlerFunc) message.HandlerFunc {
	var delivered atomic.Bool
	return func(msg *message.Message) ([]*message.Message, error) {
		outputs, err := h(msg)
		if !delivered.Swap(true) {
			_, _ = h(msg)
		}
		return outputs, err
	}
}

func runTwice(b *bench) {
	b.tell("twice", misconduct{want: mustFail, wrap: twice, errs: []error{stores.ErrReentered}})
}

func retryInside(b *bench) {
	store := b.open()
	retry := watermill.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}.Middleware
	m := misconduct{want: mustFail, wrap: retry, end: fails}
	b.story("retry", m).throughStore(store)
	b.story("retry behind the inbox", m).throughInbox(b.service(store))
}

// hiding returns nil whatever becomes of the handler.
func hiding(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (_ []*message.Message, err error) {
		defer func() {
			if recover() != nil {
				err = nil
			}
		}()
		_, _ = h(msg)
		return nil, nil
	}
}

func failureHidden(b *bench) {
	store := b.open()
	in := b.service(store)
	for _, end := range []ending{fails, blows} {
		m := misconduct{want: mustFail, wrap: hiding, end: end, errs: []error{stores.ErrFailureHidden}}
		b.story("hidden, "+string(end), m).throughStore(store)
		b.story("hidden, "+string(end)+", behind the inbox", m).throughInbox(in)
	}
	b.healthy(store)
}

func nestedInbox(b *bench) {
	store := b.open()
	in, other := b.service(store), b.service(store)
	for name, wrap := range map[string]func(message.HandlerFunc) message.HandlerFunc{
		"in the same inbox":    in.Middleware,
		"in another inbox":     other.Middleware,
		"in both, three times": func(h message.HandlerFunc) message.HandlerFunc { return in.Middleware(other.Middleware(h)) },
	} {
		for _, end := range []ending{hides, fails} {
			b.story("nested "+name+", "+string(end), misconduct{want: mustCommit, wrap: wrap, end: end}).throughInbox(in)
		}
	}
}

func panics(context.Context, *message.Message) error { panic("storetest: the handler panics") }

func exits(context.Context, *message.Message) error {
	runtime.Goexit()
	return nil
}

// leaves tells the story of a handler that does not return.
func (b *bench) leaves(name string, act func(context.Context, *message.Message) error) {
	b.tb.Helper()
	store := b.open()
	in := b.service(store)
	for _, last := range []bool{false, true} {
		s := b.story(name, misconduct{want: mustFail, act: act, last: last})
		if last {
			s.name += " at the end"
		}
		s.throughInbox(in)
	}
	b.story(name+" after an ack", misconduct{want: mustFail, act: func(ctx context.Context, msg *message.Message) error {
		msg.Ack()
		return act(ctx, msg)
	}}).throughInbox(in)

	msg := message.NewMessage("passed on", nil)
	a := b.deliver(in.Middleware(b.handler(act)), msg)
	if a.exited == (a.panicked != nil) {
		b.tb.Errorf("the handler's panic or exit did not go on up: %+v", a)
	}
	b.healthy(store)
}

// wantReason fails unless the message is in quarantine for that reason, once.
func (b *bench) wantReason(uuid string, reason stores.Reason) {
	b.tb.Helper()
	kept := b.quarantinedAs(messageKey(b.tb, message.NewMessage(uuid, nil)))
	if len(kept) != 1 || kept[0].Reason != reason {
		b.tb.Errorf("%q is kept as %+v, want once, as %s", uuid, kept, reason)
	}
}

func acksEarly(b *bench) {
	store := b.open()
	in := b.service(store)
	act := func(_ context.Context, msg *message.Message) error {
		msg.Ack()
		return nil
	}
	b.story("acks", misconduct{want: mustCommit, act: act, end: hides}).throughInbox(in)
	b.story("acks and fails", misconduct{want: mustFail, act: act, end: fails}).throughInbox(in)
	b.story("acks and runs twice", misconduct{want: mustFail, act: act, wrap: twice, end: hides}).throughInbox(in)
	unkept := b.service(store, func(c *middleware.InboxConfig) { c.Keep.Off = true })
	b.story("acks, fails and is not to be kept", misconduct{want: mustFail, act: act, end: fails}).throughInbox(unkept)
	b.wantReason("acks, fails and is not to be kept", stores.ReasonAckedEarly)
	b.healthy(store)
}

// nacksItself: the message comes again although its effects are committed.
func nacksItself(b *bench) {
	in := b.service(b.open())
	act := func(_ context.Context, msg *message.Message) error {
		msg.Nack()
		return nil
	}
	b.story("nacks", misconduct{want: mayCommit, act: act, end: hides}).throughInbox(in)
	b.story("nacks and fails", misconduct{want: mustFail, act: act, end: fails}).throughInbox(in)
}

func outlivesDeadline(b *bench) {
	in := b.service(b.open(), func(c *middleware.InboxConfig) { c.HandlerTimeout = 300 * time.Millisecond })
	act := func(ctx context.Context, _ *message.Message) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, end := range []ending{hides, fails} {
		b.story("outlives its deadline, "+string(end), misconduct{want: mayCommit, act: act, end: end}).throughInbox(in)
		b.story("outlives its deadline at the end, "+string(end), misconduct{want: mayCommit, act: act, last: true, end: end}).throughInbox(in)
	}
}

// writesLater keeps the context of an attempt, as a goroutine does that outlives the
// handler, and writes with it: after the end of the attempt, and then while another
// one runs, perhaps on the same connection.
func writesLater(b *bench) {
	store := b.open()
	for name, end := range map[string]func(stores.Attempt){"commit": b.commit, "rollback": b.rollback} {
		attempt := b.win(store, claimFor("late "+name, "payload"))
		late := attempt.Context(b.ctx)
		b.write(attempt, Effect{Key: "late " + name, Label: "first", Run: 1})
		end(attempt)
		b.writeLate(late, "after the "+name)

		next := b.win(store, claimFor("next "+name, "payload"))
		b.writeLate(late, "into the attempt after the "+name)
		b.write(next, Effect{Key: "next " + name, Label: "first", Run: 1})
		b.writeLate(late, "into the attempt after the "+name)
		b.commit(next)
		if got := b.effects("next " + name); len(got) != 1 {
			b.tb.Errorf("the attempt after the %s left effects %v, want one", name, got)
		}
	}
	if got := b.effects("late"); len(got) > 0 {
		b.tb.Errorf("a goroutine that outlived its handler committed %v", got)
	}
}

func (b *bench) writeLate(ctx context.Context, when string) {
	b.tb.Helper()
	if err := b.h.Write(ctx, Effect{Key: "late", Label: when, Run: 1}); err == nil {
		b.tb.Errorf("a write %s did not fail", when)
	}
	for _, way := range b.h.Ways {
		if way.Unpreventable != "" {
			continue
		}
		err := way.Exec(ctx, "INSERT INTO "+EffectTable+" (effect_key, label, run) VALUES ('late', 'by SQL', 1)")
		if err == nil {
			b.tb.Errorf("%s: a write %s did not fail", way.Name, when)
		}
		for _, text := range []string{"COMMIT", "ROLLBACK"} {
			_ = way.Exec(ctx, text)
		}
	}
}

func withoutAttempt(b *bench) {
	store := b.open()
	ran := false
	h := b.handler(func(ctx context.Context, _ *message.Message) error {
		ran = true
		return b.h.Write(ctx, Effect{Key: "none", Label: "first", Run: 1})
	})
	msg := message.NewMessage("none", nil)
	msg.SetContext(b.ctx)
	_, err := h(msg)
	wantErr(b.tb, "the typed helper without an inbox around it", err, stores.ErrNoTx)
	if ran {
		b.tb.Errorf("the typed helper called the handler without a transaction")
	}
	if err := b.h.Write(b.ctx, Effect{Key: "none", Label: "first", Run: 1}); err == nil {
		b.tb.Errorf("a write without a transaction did not fail")
	}

	attempt := b.win(store, claimFor("over", "payload"))
	msg.SetContext(attempt.Context(b.ctx))
	b.rollback(attempt)
	if _, err := h(msg); err == nil {
		b.tb.Errorf("a handler with the context of an attempt that is over returned nil")
	}
	if got := b.effects("none"); len(got) > 0 {
		b.tb.Errorf("effects %v are committed without a claim", got)
	}
}

// shutdownMeanwhile: Watermill cancels the contexts of messages that are being
// handled as soon as it shuts down. The attempt goes on all the same.
func shutdownMeanwhile(b *bench) {
	in := b.service(b.open())
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	s := b.story("shutdown", misconduct{want: mustCommit, end: hides})
	h := in.Middleware(b.handler(func(ctx context.Context, msg *message.Message) error {
		cancel()
		return errors.Join(ctx.Err(), s.handle(ctx, msg))
	}))
	msg := message.NewMessage("shutdown", []byte("payload"))
	msg.SetContext(ctx)
	_, err := h(msg)
	if err != nil {
		b.tb.Errorf("a handler during a shutdown: %v", err)
	}
	c := s.check(messageKey(b.tb, msg), err == nil, "after a shutdown")
	s.first(c, err == nil)
}
