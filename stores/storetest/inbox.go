package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermill "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// The whole inbox on the store, delivery by delivery.
func inboxChecks() []check {
	return []check{
		{name: "duplicates", run: inboxDuplicates},
		{name: "conflict", run: inboxConflict},
		{name: "the same payload as another event", run: anotherEvent},
		{name: "held while in flight", run: heldWhileInFlight},
		{name: "given back while in flight", run: givenBackInFlight},
		{name: "no connection is left", run: noConnectionLeft},
		{name: "encoded differently each time", run: encodedDifferently},
		{name: "discarded while the broker has it", run: discardedAtTheBroker},
		{name: "returned messages", run: returnedMessages},
		{name: "a Retry outside the inbox", run: retryOutside},
		{name: "reply to the commit is lost", run: lostReply},
		{name: "commit is lost", run: lostCommit},
		{name: "two handlers", run: twoHandlers},
		{name: "two services with one consumer name", run: twoServices},
		{name: "closed store", run: inboxOnClosedStore},
	}
}

func inboxDuplicates(b *bench) {
	here, elsewhere := b.open(), b.open()
	cached := func(c *middleware.InboxConfig) { c.CacheSize = 100 }
	services := []*middleware.Inbox{b.service(here), b.service(here, cached), b.service(elsewhere), b.service(elsewhere, cached)}
	for i, first := range services {
		id := fmt.Sprint("duplicates ", i)
		msg := message.NewMessage(id, []byte("payload"))
		msg.Metadata.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		deliver := func(in *middleware.Inbox, facts brokers.Delivery) {
			if a := b.deliverWith(in.Middleware(b.effect(id)), msg, facts); !a.acked {
				b.tb.Errorf("%s: not acked: %v", id, a.err)
			}
		}
		deliver(first, brokers.Delivery{Suspect: i%2 == 0})
		if got := b.effects(id); len(got) != 1 {
			b.tb.Errorf("%s: effects %v are committed, want one", id, got)
		}
		before := b.snapshot()
		for _, in := range services {
			msg.Metadata.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01") // changes with each delivery
			deliver(in, brokers.Delivery{})
			deliver(in, brokers.Delivery{Suspect: true, Count: 2})
		}
		b.unchanged(before, "duplicates")
	}
	if kept := b.quarantined(); len(kept) > 0 {
		b.tb.Errorf("duplicates are in quarantine: %+v", kept)
	}
}

func inboxConflict(b *bench) {
	store := b.open()
	for i, in := range []*middleware.Inbox{b.service(store), b.service(store, func(c *middleware.InboxConfig) { c.CacheSize = 100 })} {
		id := fmt.Sprint("conflict ", i)
		first := message.NewMessage(id, []byte("payload"))
		if a := b.deliver(in.Middleware(b.effect(id)), first); !a.acked {
			b.tb.Fatalf("not acked: %v", a.err)
		}
		before := b.snapshot()
		second := message.NewMessage(id, []byte("another payload"))
		second.Metadata.Set("key", "value \xff")
		for range 3 {
			if a := b.deliver(in.Middleware(b.effect(id+" again")), second); !a.acked {
				b.tb.Errorf("a conflict was not acked: %v", a.err)
			}
		}
		b.unchanged(before, "a conflict")
		kept := b.quarantinedAs(messageKey(b.tb, first))
		if len(kept) != 1 {
			b.tb.Fatalf("a conflict that was delivered 3 times is kept as %+v, want one row", kept)
		}
		want := stores.Quarantined{
			Consumer: consumer, ID: messageKey(b.tb, first).ID, Reason: stores.ReasonConflict, Detail: kept[0].Detail,
			Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, second.Payload),
			Existing:    stores.NewFingerprint(stores.FingerprintKey{}, first.Payload),
			Topic:       topic, UUID: id, Metadata: second.Metadata, Payload: second.Payload,
		}
		if want.Facts.RanAs = kept[0].Facts.RanAs; len(want.Facts.RanAs) == 0 || bytes.Equal(want.Facts.RanAs, want.ID) {
			b.tb.Errorf("released, a conflict would be known to others as %q, as the first message is", want.Facts.RanAs)
		}
		b.sameMessage(kept[0], want, 3)
		if kept[0].Detail == "" {
			b.tb.Errorf("a conflict is kept without a detail")
		}
	}
}

// anotherEvent: what a message is may stand in its metadata alone. Under a used id the
// other event is no duplicate, whatever the payload.
func anotherEvent(b *bench) {
	store := b.open()
	declared := func(c *middleware.InboxConfig) { c.Fingerprint.Headers = []string{"event_type"} }
	for i, test := range []struct {
		in            *middleware.Inbox
		header        string
		first, second string // "": it has no such header
		conflict      bool
	}{
		{b.service(store), "name", "noop", "charge", true},
		{b.service(store), "name", "", "charge", true},
		{b.service(store), "name", "noop", "", true},
		{b.service(store), "name", "noop", "noop", false},
		{b.service(store, declared), "event_type", "noop", "charge", true},
		{b.service(store, declared), "name", "noop", "charge", true},
		{b.service(store), "event_type", "noop", "charge", false}, // not declared: see FingerprintConfig
	} {
		id := fmt.Sprint("event ", i)
		send := func(value, effect string) {
			msg := message.NewMessage(id, []byte("{}"))
			if value != "" {
				msg.Metadata.Set(test.header, value)
			}
			if a := b.deliver(test.in.Middleware(b.effect(effect)), msg); !a.acked {
				b.tb.Errorf("%s=%s was not acked: %v", test.header, value, a.err)
			}
		}
		send(test.first, id)
		send(test.second, id+" again")
		kept := b.quarantinedAs(messageKey(b.tb, message.NewMessage(id, nil)))
		if conflict := len(kept) == 1 && kept[0].Reason == stores.ReasonConflict; conflict != test.conflict || len(b.effects(id+" again")) != 0 {
			b.tb.Errorf("%s=%q after %q: in quarantine are %+v, the second's effects are %v, want a conflict: %t",
				test.header, test.second, test.first, kept, b.effects(id+" again"), test.conflict)
		}
	}
}

// blocking is a handler that waits in the middle of its first run.
type blocking struct {
	message.HandlerFunc
	started, proceed chan struct{}
	runs             atomic.Int64
}

func (b *bench) blocking(key string) *blocking {
	block := &blocking{started: make(chan struct{}), proceed: make(chan struct{})}
	block.HandlerFunc = b.handler(func(ctx context.Context, _ *message.Message) error {
		err := b.h.Write(ctx, Effect{Key: key, Label: "first", Run: int(block.runs.Add(1))})
		if block.runs.Load() == 1 {
			close(block.started)
			<-block.proceed
		}
		return err
	})
	return block
}

func heldWhileInFlight(b *bench) {
	store := b.open()
	here, elsewhere := b.service(store), b.service(b.open())
	if b.claimsShared(store) {
		elsewhere = b.service(store)
	}
	for i, other := range []*middleware.Inbox{here, elsewhere} {
		id := fmt.Sprint("held ", i)
		handler := b.blocking(id)
		msg := message.NewMessage(id, []byte("payload"))
		answers := make(chan answer, 2)
		go func() { answers <- b.deliver(here.Middleware(handler.HandlerFunc), msg) }()
		<-handler.started
		go func() { answers <- b.deliver(other.Middleware(handler.HandlerFunc), msg) }()
		select {
		case a := <-answers:
			b.tb.Errorf("a delivery was settled while another one of the message was running: %+v", a)
			answers <- a
		case <-time.After(200 * time.Millisecond):
		}
		close(handler.proceed)
		for range 2 {
			if a := <-answers; !a.acked {
				b.tb.Errorf("not acked: %v", a.err)
			}
		}
		if got := b.effects(id); len(got) != 1 || handler.runs.Load() != 1 {
			b.tb.Errorf("the handler ran %d times and left %v, want once", handler.runs.Load(), got)
		}
	}
}

func givenBackInFlight(b *bench) {
	store := b.open()
	in := b.service(store, func(c *middleware.InboxConfig) { c.Hold.Limit = 100 * time.Millisecond })
	handler := b.blocking("given back")
	msg := message.NewMessage("given back", []byte("payload"))
	first := make(chan answer, 1)
	go func() { first <- b.deliver(in.Middleware(handler.HandlerFunc), msg) }()
	<-handler.started
	for range 3 {
		a := b.deliver(in.Middleware(handler.HandlerFunc), msg)
		if a.acked {
			b.tb.Errorf("a delivery was acked while another one of the message was running")
		}
		if !errors.Is(a.err, middleware.ErrNotNow) || !errors.Is(a.err, middleware.ErrInFlight) {
			b.tb.Errorf("given back with %v, want ErrNotNow and ErrInFlight", a.err)
		}
	}
	close(handler.proceed)
	if a := <-first; !a.acked {
		b.tb.Errorf("the delivery that ran was not acked: %v", a.err)
	}
	if a := b.deliver(in.Middleware(handler.HandlerFunc), msg); !a.acked || handler.runs.Load() != 1 {
		b.tb.Errorf("the message was delivered again: acked %t, handler ran %d times", a.acked, handler.runs.Load())
	}
}

func returnedMessages(b *bench) {
	in := b.service(b.open())
	msg := message.NewMessage("outputs", []byte("payload"))
	honest := b.effect("outputs")
	h := in.Middleware(func(m *message.Message) ([]*message.Message, error) {
		_, err := honest(m)
		return []*message.Message{message.NewMessage("output", nil)}, err
	})
	for range 2 {
		if a := b.deliver(h, msg); !a.acked {
			b.tb.Errorf("a message whose handler returns messages was not acked, so it would come for ever: %v", a.err)
		}
	}
	if f := b.failure(string(messageKey(b.tb, msg).ID)); f.state.Status != stores.StatusFailed || f.state.Class != stores.ClassOutputs || f.content.State != stores.ContentKept {
		b.tb.Errorf("a message whose handler returns messages is kept as %+v, want failed, with its content", f)
	}
	if got := b.effects("outputs"); len(got) > 0 || b.completed(messageKey(b.tb, msg)) {
		b.tb.Errorf("the attempt was committed, and the returned messages are lost: %v", got)
	}
}

func retryOutside(b *bench) {
	in := b.service(b.open())
	s := b.story("retry outside", misconduct{end: fails})
	retry := watermill.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}.Middleware
	msg := message.NewMessage(s.name, []byte("payload"))
	a := b.deliver(retry(in.Middleware(s.handler())), msg)
	if !a.acked || s.ran() != 2 {
		b.tb.Errorf("acked %t after %d runs, want after 2: %v", a.acked, s.ran(), a.err)
	}
	s.check(messageKey(b.tb, msg), a.acked, "after a retry")
}

func twoHandlers(b *bench) {
	store := b.open()
	msg := message.NewMessage("two handlers", []byte("payload"))
	for _, name := range []string{"stock", "mail"} {
		in := b.service(store, func(c *middleware.InboxConfig) { c.Handler = name })
		for range 2 {
			if a := b.deliver(in.Middleware(b.effect(name)), msg); !a.acked {
				b.tb.Errorf("%s: not acked: %v", name, a.err)
			}
		}
	}
	if got := b.allEffects(); len(got) != 2 {
		b.tb.Errorf("two handlers of one message left %v, want one effect each", got)
	}
}

// twoServices: another program under the same consumer name reads another topic. Its
// messages would be taken for duplicates.
func twoServices(b *bench) {
	first := b.service(b.open())
	msg := message.NewMessage("two services", []byte("payload"))
	if a := b.deliver(first.Middleware(b.effect("first")), msg); !a.acked {
		b.tb.Fatalf("not acked: %v", a.err)
	}
	before := b.snapshot()
	second := b.service(b.openOnly(), func(c *middleware.InboxConfig) { c.Hold.Limit = 50 * time.Millisecond })
	h := second.Middleware(b.effect("second"))
	msg.SetContext(brokers.WithDelivery(b.ctx, msg, brokers.Delivery{Topic: "a topic of another service"}))
	_, err := h(msg)
	wantErr(b.tb, "a delivery of a second service under the name", err, stores.ErrConsumerConflict)
	wantErr(b.tb, "a delivery of a second service under the name", err, middleware.ErrNotNow)
	b.unchanged(before, "a second service under the name")
}

func inboxOnClosedStore(b *bench) {
	store := b.openOnly()
	if _, err := store.Migrate(b.ctx); err != nil {
		b.tb.Fatalf("Migrate: %v", err)
	}
	in := b.service(store, func(c *middleware.InboxConfig) { c.Hold.Limit = 50 * time.Millisecond })
	if a := b.deliver(in.Middleware(b.effect("open")), message.NewMessage("open", nil)); !a.acked {
		b.tb.Fatalf("not acked: %v", a.err)
	}
	if err := store.Close(); err != nil {
		b.tb.Errorf("Close: %v", err)
	}
	for _, id := range []string{"open", "closed", ""} { // a duplicate, a new one, one for quarantine
		a := b.deliver(in.Middleware(b.effect("closed")), message.NewMessage(id, nil))
		if a.acked {
			b.tb.Errorf("%q was acked although the store is closed", id)
		}
		wantErr(b.tb, "a delivery on a closed store", a.err, middleware.ErrNotNow)
		wantErr(b.tb, "a delivery on a closed store", a.err, stores.ErrClosed)
	}
	if got := b.effects("closed"); len(got) > 0 || len(b.quarantined()) > 0 {
		b.tb.Errorf("a closed store has committed %v", got)
	}
}
