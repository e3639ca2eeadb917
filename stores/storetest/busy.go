package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// noConnectionLeft: a claim that has waited in vain for a connection, or for its turn to
// write, has learnt nothing about the server. So what is known to be completed stays
// known, and its duplicates need no connection.
func noConnectionLeft(b *bench) {
	store := b.open()
	can := store.Capabilities()
	most := can.Pool.Max
	if can.SingleWriter {
		most = 1
	}
	if most == 0 {
		b.tb.Logf("not checked: the store opens as many connections as are asked for")
		return
	}
	in := b.service(store, func(c *middleware.InboxConfig) {
		c.CacheSize, c.ClaimTimeout, c.Hold.Limit = 100, 100*time.Millisecond, 200*time.Millisecond
	})
	known := message.NewMessage("known", []byte("payload"))
	if a := b.deliver(in.Middleware(b.effect("known")), known); !a.acked {
		b.tb.Fatalf("not acked: %v", a.err)
	}
	for i := range most {
		ctx, cancel := context.WithTimeout(b.ctx, 2*time.Second)
		attempt, v, err := store.Begin(ctx, claimFor(fmt.Sprint("holds a connection ", i), "payload"))
		cancel()
		if err != nil && i > 0 {
			b.tb.Logf("not checked: a pooler in between grants fewer connections than the store may open: %v", err)
			return
		}
		if err != nil || v.Outcome != stores.Claimed {
			b.tb.Fatalf("Begin = %s, %v", v.Outcome, err)
		}
		defer b.rollback(attempt)
	}
	b.within(promptly, "a claim without a connection", func() {
		ctx, cancel := context.WithTimeout(b.ctx, 300*time.Millisecond)
		defer cancel()
		attempt, _, err := store.Begin(ctx, claimFor("late", "payload"))
		b.noAttempt(attempt)
		wantErr(b.tb, "Begin", err, stores.ErrUnavailable)
		wantErr(b.tb, "Begin", err, stores.ErrBusy)
	})
	a := b.deliver(in.Middleware(b.effect("late")), message.NewMessage("late", []byte("payload")))
	if a.acked {
		b.tb.Errorf("a message was acked without a connection")
	}
	wantErr(b.tb, "a delivery without a connection", a.err, middleware.ErrNotNow)
	if a := b.deliver(in.Middleware(b.effect("known again")), known); !a.acked {
		b.tb.Errorf("after that the completed message is not known any more: %v", a.err)
	}
}
