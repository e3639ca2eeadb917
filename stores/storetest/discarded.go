package storetest

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// A message that its broker is to deliver again has no content in the store. Whoever acks
// it after it was discarded is the last that has it.

func contentAfterDiscard(b *bench) {
	here, elsewhere := b.open(), b.open()
	claim := claimFor("a", "a")
	content := *failureOf(claim).Content
	keeps := func(version int64, c stores.Content, target error) {
		b.tb.Helper()
		before := b.snapshot()
		err := elsewhere.KeepContent(b.ctx, claim.Key, version, c)
		if target == nil && err != nil {
			b.tb.Errorf("KeepContent: %v", err)
		}
		if target != nil {
			wantErr(b.tb, "KeepContent", err, target)
			b.unchanged(before, "KeepContent")
		}
	}
	keeps(1<<20, content, stores.ErrChanged) // there is no row
	pending := b.fails(here, "a", redelivered)
	keeps(pending, content, stores.ErrChanged) // the broker has it
	b.change(here, stores.VerbDiscard, stores.Filter{}, 1)
	keeps(pending, content, stores.ErrChanged)

	// An operator wants it after all, just before.
	seen := b.look(elsewhere, claim, stores.Final).Failure
	if seen.Content != stores.ContentNone {
		b.tb.Errorf("its content is %s", seen.Content)
	}
	b.change(here, stores.VerbRetry, stores.Filter{Status: []stores.Status{stores.StatusDiscarded}}, 1)
	keeps(seen.Version, content, stores.ErrChanged)
	b.look(elsewhere, claim, stores.Claimable)

	b.change(here, stores.VerbDiscard, stores.Filter{}, 1)
	seen = b.look(elsewhere, claim, stores.Final).Failure
	keeps(seen.Version, content, nil)
	keeps(seen.Version, content, stores.ErrChanged) // another delivery was faster
	keeps(b.failure("a").version, content, stores.ErrChanged)
	b.sameContent("discarded", b.failure("a").content, content)
	b.change(here, stores.VerbRetry, stores.Filter{Status: []stores.Status{stores.StatusDiscarded}}, 1)
	r := b.wantDue(here, "a")[0]
	b.sameContent("due", r.Content, content)
	b.commit(b.take(elsewhere, claimOf(r), r.State.Version))
	b.paired()
}

// discardedAtTheBroker: what was discarded can be taken back, also if its redelivery has
// been acked meanwhile.
func discardedAtTheBroker(b *bench) {
	store := b.open()
	for _, suspect := range []bool{false, true} {
		for state, keep := range map[stores.ContentState]middleware.KeepConfig{
			stores.ContentKept: {}, stores.ContentOff: {Off: true}, stores.ContentTooLarge: {MaxBytes: 1},
		} {
			b.clear()
			in := b.service(store, func(c *middleware.InboxConfig) { c.Keep = keep })
			msg := message.NewMessage("discarded", []byte("payload"))
			msg.Metadata.Set("key", "value")
			deliver := func(h message.HandlerFunc) answer {
				return b.deliverWith(in.Middleware(h), msg, brokers.Delivery{Suspect: suspect})
			}
			if a := deliver(b.handler(func(context.Context, *message.Message) error { return errHandler })); a.acked {
				b.tb.Fatalf("a failure was acked that the broker is to deliver again")
			}
			b.change(store, stores.VerbDiscard, stores.Filter{}, 1)
			if a := deliver(b.effect("discarded")); !a.acked || len(b.effects("discarded")) > 0 {
				b.tb.Errorf("the redelivery of a discarded message: acked %t, effects %v, %v", a.acked, b.effects("discarded"), a.err)
			}
			f := b.failureOf(messageKey(b.tb, msg))
			if f.content.State != state {
				b.tb.Fatalf("after that its content is %s, want %s", f.content.State, state)
			}
			discarded := stores.Filter{Status: []stores.Status{stores.StatusDiscarded}}
			if v := b.change(store, stores.VerbRetry, discarded, 1); (v.Redelivered == 0) != (state == stores.ContentKept) {
				b.tb.Errorf("retried with the content %s: %+v", state, v)
			}
			if state == stores.ContentKept {
				b.work(in, b.effect("discarded"), func() bool { return len(b.effects("discarded")) == 1 })
				b.paired()
			}
		}
	}
}
