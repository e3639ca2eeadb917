package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func outageChecks() []check {
	return []check{
		{name: "the database cannot be used", server: true, run: func(b *bench) { b.unusable("Outage", b.db.Outage) }},
		{name: "the database is read-only", server: true, run: func(b *bench) { b.unusable("ReadOnly", b.db.ReadOnly) }},
	}
}

// unusable: nothing is decided, run, acked or lost while the database cannot be
// written to, and deliveries that are held go on by themselves when it can.
func (b *bench) unusable(field string, begin func(tb testing.TB) func()) {
	if begin == nil {
		b.tb.Logf("not checked: the harness has no %s", field)
		return
	}
	const (
		holdLimit    = 200 * time.Millisecond
		storeTimeout = time.Second
	)
	store := b.open()
	done := claimFor("before", "payload")
	b.complete(store, done)
	impatient := b.service(store, func(c *middleware.InboxConfig) {
		c.Hold.Limit, c.CommitTimeout, c.RecordTimeout = holdLimit, storeTimeout, storeTimeout
	})
	patient := b.service(store)
	if a := b.deliver(impatient.Middleware(b.effect("registered")), message.NewMessage("registered", nil)); !a.acked {
		b.tb.Fatalf("not acked: %v", a.err)
	}
	before := b.snapshot()
	restore := begin(b.tb)
	b.unavailable(store)

	for _, id := range []string{"new", ""} { // one to run, one for quarantine
		begun := time.Now()
		a := b.deliver(impatient.Middleware(b.effect("new")), message.NewMessage(id, nil))
		if took := time.Since(begun); took > holdLimit+storeTimeout+time.Second {
			b.tb.Errorf("a delivery of %q was held for %s, with a limit of %s and calls of the store bounded by %s", id, took, holdLimit, storeTimeout)
		}
		if a.acked {
			b.tb.Errorf("%q was acked during it", id)
		}
		wantErr(b.tb, fmt.Sprintf("a delivery of %q", id), a.err, middleware.ErrNotNow)
	}
	held := make(chan answer, 2)
	for _, id := range []string{"held", ""} {
		go func() {
			held <- b.deliver(patient.Middleware(b.effect("held")), message.NewMessage(id, []byte("held")))
		}()
	}
	select {
	case a := <-held:
		b.tb.Errorf("a delivery was settled during it: %+v", a)
		held <- a
	case <-time.After(300 * time.Millisecond):
	}
	restore()
	if !poll(b.ctx, patience, func() bool { return b.db.Admin.PingContext(b.ctx) == nil }) {
		b.tb.Fatalf("storetest: the database is not back")
	}
	for range 2 {
		if a := <-held; !a.acked {
			b.tb.Errorf("a delivery that was held was not acked afterwards: %v", a.err)
		}
	}
	if got := b.effects("new"); len(got) > 0 {
		b.tb.Errorf("a delivery that was given back left %v", got)
	}
	if got := b.effects("held"); len(got) != 1 || len(b.quarantined()) != 1 {
		b.tb.Errorf("the held deliveries left %v and %d rows in quarantine, want one each", got, len(b.quarantined()))
	}
	if after := b.snapshot(); len(after) != len(before)+2 { // a row and an effect
		b.tb.Errorf("the inbox and the effects went from %q to %q", before, after)
	}
	a := b.deliver(impatient.Middleware(b.effect("new")), message.NewMessage("new", nil))
	if !a.acked || len(b.effects("new")) != 1 {
		b.tb.Errorf("the message that was given back came again: acked %t, effects %v, %v", a.acked, b.effects("new"), a.err)
	}
	b.expect(store, done, stores.Duplicate)
	b.healthy(store)
}

// unavailable asks the store for everything that writes. It must say so, in time.
func (b *bench) unavailable(store stores.Store) {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Second)
	defer cancel()
	b.within(promptly, "the store", func() {
		attempt, _, err := store.Begin(ctx, claimFor("new", "payload"))
		wantErr(b.tb, "Begin", err, stores.ErrUnavailable)
		b.noAttempt(attempt)
		_, err = store.Record(ctx, failureOf(claimFor("new", "payload")))
		wantErr(b.tb, "Record", err, stores.ErrUnavailable)
		wantErr(b.tb, "Quarantine", store.Quarantine(ctx, message1()), stores.ErrUnavailable)
	})
}
