package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// Leases of messages, whose handlers have their effect outside of the database.
func leasedChecks() []check {
	return []check{
		{name: "claimed, renewed and completed", run: leasedCompletes},
		{name: "renewed by its holder alone", run: leasedRenewed},
		{name: "taken over when it has expired", run: leasedTakenOver},
		{name: "taken over once, of many", run: leasedRace},
		{name: "an expired one that nobody took over completes", run: leasedExpired},
		{name: "of a parked message", run: leasedParked},
		{name: "left alone by operators, or broken", run: leasedBroken},
		{name: "the end of an earlier message of its order key", run: leasedInOrder},
		{name: "steps that are on record", run: leasedSteps},
		{name: "no step of who has lost the lease is recorded", run: leasedStepsFenced},
		{name: "a record of a step beside a takeover", run: leasedStepsRace},
		{name: "a record of a step beside the completion", run: leasedStepsEnd},
		{name: "a record of a step beside an operator", run: leasedStepsChange},
		{name: "a handler that stands still for longer than its lease lives", run: leasedStandsStill},
	}
}

// leasing is a store with leases.
func (b *bench) leasing() (stores.Store, stores.LeaseInbox) {
	store := b.open()
	leases, ok := store.(stores.LeaseInbox)
	if !ok {
		b.tb.Fatalf("%T is no stores.LeaseInbox: handlers cannot run under a lease on it", store)
	}
	return store, leases
}

// leaseOf returns the start of an attempt under a lease.
func leaseOf(c stores.Claim, version int64, holder string, ttl time.Duration) stores.Failure {
	f := failureOf(c)
	redelivered(&f)
	f.Version, f.Holder, f.DueIn, f.Start = version, holder, ttl, true
	return f
}

func (b *bench) extends(leases stores.LeaseInbox, l stores.HeldLease, d time.Duration) {
	b.tb.Helper()
	if err := leases.Extend(b.ctx, l, d); err != nil {
		b.tb.Fatalf("Extend by %s: %v", l.Holder, err)
	}
}

func (b *bench) extendsNot(leases stores.LeaseInbox, l stores.HeldLease, what string) {
	b.tb.Helper()
	before := b.snapshot()
	wantErr(b.tb, what, leases.Extend(b.ctx, l, time.Hour), stores.ErrChanged)
	b.unchanged(before, what)
}

// lost checks that a holder before changes nothing any more.
func (b *bench) lost(leases stores.LeaseInbox, c stores.Claim, l stores.HeldLease) {
	b.tb.Helper()
	before := b.snapshot()
	c.Take = l.Version
	attempt, v := b.begin(leases, c)
	if attempt != nil {
		if s, ok := leases.(stores.Store); !ok || !s.Capabilities().ClaimsShared {
			b.tb.Errorf("who has lost the lease has claimed its completion")
		}
		wantErr(b.tb, "the completion by who has lost the lease", attempt.Commit(b.ctx), stores.ErrNotCommitted)
	}
	wantErr(b.tb, "a step of who has lost the lease", leases.RecordStep(b.ctx, l, stores.Step{Name: "late", Result: []byte("1")}), stores.ErrChanged)
	b.refuses(leases, leaseOf(c, l.Version, l.Holder, time.Hour), false, "another start by who has lost the lease")
	late := failureOf(c)
	redelivered(&late)
	late.Version = l.Version
	b.refuses(leases, late, false, "a failure recorded by who has lost the lease, where "+v.Outcome.String())
	b.extendsNot(leases, l, "a renewal by who has lost the lease")
	b.unchanged(before, "who has lost the lease")
}

func leasedCompletes(b *bench) {
	here, leases := b.leasing()
	elsewhere := b.open()
	c := claimFor("leased", "payload")
	l := stores.HeldLease{Key: c.Key, Holder: "here/1"}
	l.Version = b.record(here, leaseOf(c, 0, l.Holder, time.Minute))
	b.refuses(elsewhere, leaseOf(c, 0, "elsewhere/1", time.Minute), false, "another lease of the same key")
	v := b.look(elsewhere, c, stores.Deferred)
	if !v.Failure.Presumed || v.Failure.DueIn <= 50*time.Second || v.Failure.DueIn > time.Minute {
		b.tb.Errorf("a leased message looks like %+v, want presumed and due in a minute", v.Failure)
	}
	b.expect(elsewhere, c, stores.Deferred)
	for range 2 { // the answer to the first may be lost
		b.extends(leases, l, time.Hour)
	}
	if v := b.look(elsewhere, c, stores.Deferred); v.Failure.DueIn <= 50*time.Minute || v.Failure.Version != l.Version {
		b.tb.Errorf("a renewed lease looks like %+v, want due in an hour, in version %d", v.Failure, l.Version)
	}
	m, err := elsewhere.Find(b.ctx, c.Key)
	if err != nil || m.Holder != l.Holder || !m.Reserved {
		b.tb.Errorf("operators see %q, %t, %v, want the holder %q", m.Holder, m.Reserved, err, l.Holder)
	}
	c.Take = l.Version
	attempt := b.win(here, c)
	b.write(attempt, Effect{Key: "leased", Label: "first", Run: 1})
	b.commit(attempt)
	if got := b.effects("leased"); len(got) != 1 || !b.completed(c.Key) || len(b.failures()) > 0 {
		b.tb.Errorf("effects %v, completed %t, %d failures: want one, true and none", got, b.completed(c.Key), len(b.failures()))
	}
	b.look(elsewhere, c, stores.Duplicate)
	b.extendsNot(leases, l, "a renewal of what is completed")
}

func leasedRenewed(b *bench) {
	here, leases := b.leasing()
	c := claimFor("renewed", "payload")
	l := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", time.Minute)), Holder: "here/1"}
	b.extendsNot(leases, stores.HeldLease{Key: c.Key, Version: l.Version, Holder: "HERE/1"}, "a renewal by another holder")
	b.extendsNot(leases, stores.HeldLease{Key: c.Key, Version: l.Version + 1, Holder: l.Holder}, "a renewal in another version")
	b.extendsNot(leases, stores.HeldLease{Key: claimFor("other", "").Key, Version: l.Version, Holder: l.Holder}, "a renewal of another key")
	again := b.record(here, leaseOf(c, l.Version, "here/2", time.Minute))
	b.extendsNot(leases, l, "a renewal of the lease before")
	b.extends(leases, stores.HeldLease{Key: c.Key, Version: again, Holder: "here/2"}, time.Minute)
	ended := failureOf(c)
	redelivered(&ended)
	ended.Version, ended.Holder, ended.DueIn = again, "here/2", time.Hour
	version := b.record(here, ended)
	b.extendsNot(leases, stores.HeldLease{Key: c.Key, Version: version, Holder: "here/2"}, "a renewal of what has failed")
	if m, err := here.Find(b.ctx, c.Key); err != nil || m.Holder != "" || m.Reserved {
		b.tb.Errorf("a message that has failed has the holder %q, %v, want none", m.Holder, err)
	}
}

// takesOver takes an expired lease over.
func (b *bench) takesOver(store stores.Failures, c stores.Claim, version int64, holder string) stores.HeldLease {
	b.tb.Helper()
	f := leaseOf(c, version, holder, time.Hour)
	f.Lapsed, f.Attempts = true, 2
	l := stores.HeldLease{Key: c.Key, Holder: holder}
	if !poll(b.ctx, patience, func() (taken bool) {
		var err error
		l.Version, err = store.Record(b.ctx, f)
		return err == nil
	}) {
		b.tb.Fatal("a lease never expires")
	}
	return l
}

func leasedTakenOver(b *bench) {
	here, leases := b.leasing()
	elsewhere := b.open()
	const ttl = 700 * time.Millisecond
	c := claimFor("taken over", "payload")
	begun := time.Now()
	old := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", ttl)), Holder: "here/1"}
	b.extends(leases, old, ttl)
	now := b.takesOver(elsewhere, c, old.Version, "elsewhere/1")
	if after := time.Since(begun); after < ttl-50*time.Millisecond { // SQLite's clock has milliseconds
		b.tb.Errorf("a lease of %s was taken over after %s", ttl, after)
	}
	b.lost(leases, c, old)
	b.extends(leases, now, time.Hour)
	c.Take = now.Version
	attempt := b.win(elsewhere, c)
	b.write(attempt, Effect{Key: "taken over", Label: "first", Run: 2})
	b.commit(attempt)
	c.Take = old.Version
	b.expect(here, c, stores.Duplicate)
	if got := b.effects("taken over"); len(got) != 1 || got[0].Run != 2 {
		b.tb.Errorf("effects %v are committed, want the one of who took over", got)
	}
}

func leasedRace(b *bench) {
	here, leases := b.leasing()
	elsewhere := b.open()
	c := claimFor("race", "payload")
	old := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/0", 300*time.Millisecond)), Holder: "here/0"}
	var (
		crowd sync.WaitGroup
		won   atomic.Int32
		next  atomic.Int64
	)
	for i := range 8 {
		store := here
		if i%2 == 1 {
			store = elsewhere
		}
		crowd.Go(func() {
			f := leaseOf(c, old.Version, "thief/"+string(rune('a'+i)), time.Hour)
			f.Lapsed = true
			poll(b.ctx, patience, func() bool {
				if version, err := store.Record(b.ctx, f); err == nil {
					won.Add(1)
					next.Store(version)
				}
				return won.Load() > 0
			})
		})
	}
	crowd.Wait()
	if won.Load() != 1 {
		b.tb.Errorf("%d have taken one lease over", won.Load())
	}
	b.lost(leases, c, old)
	b.commit(b.take(here, c, next.Load()))
}

// leasedExpired: expiry alone takes nothing from the holder but the right to renew.
func leasedExpired(b *bench) {
	here, leases := b.leasing()
	c := claimFor("expired", "payload")
	l := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", 50*time.Millisecond)), Holder: "here/1"}
	if !poll(b.ctx, patience, func() bool {
		v, err := here.Look(b.ctx, c.Key, c.Fingerprint)
		return err == nil && v.Outcome == stores.Claimable
	}) {
		b.tb.Fatal("a lease never expires")
	}
	b.extendsNot(leases, l, "a renewal after the end")
	attempt := b.take(here, c, l.Version)
	b.write(attempt, Effect{Key: "expired", Label: "first", Run: 1})
	b.commit(attempt)
	b.expect(here, c, stores.Duplicate)
}

func leasedParked(b *bench) {
	here, leases := b.leasing()
	elsewhere := b.open()
	b.fails(here, "parked")
	r := b.wantDue(here, "parked")[0]
	c := claimOf(r)
	f := leaseOf(c, r.State.Version, "here/1", 300*time.Millisecond)
	f.Placement = stores.PlacementParked
	old := stores.HeldLease{Key: c.Key, Version: b.record(here, f), Holder: "here/1"}
	b.wantDue(elsewhere)
	b.extends(leases, old, 300*time.Millisecond)
	var due []stores.Retry
	if !poll(b.ctx, patience, func() bool { due = b.due(elsewhere, 10); return len(due) == 1 }) {
		b.tb.Fatal("a parked message whose lease has expired is never due")
	}
	if !due[0].State.Presumed {
		b.tb.Errorf("its state is %+v, want presumed", due[0].State)
	}
	b.lost(leases, c, old)
	b.commit(b.take(elsewhere, c, due[0].State.Version))
}

func leasedBroken(b *bench) {
	here, leases := b.leasing()
	operator := b.open()
	for _, verb := range []stores.Verb{stores.VerbRetry, stores.VerbDiscard, stores.VerbResolve} {
		id := "leased, " + string(verb)
		c := claimFor(id, "payload")
		l := stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", time.Hour)), Holder: "here/1"}
		b.wantReserved(operator, id)
		if got := b.change(operator, verb, stores.Filter{ID: []byte(id)}, 0); got.Reserved != 1 || got.Changed != 0 {
			b.tb.Errorf("%s of a leased message = %+v, want it left alone", verb, got)
		}
		b.extends(leases, l, time.Hour)
		if got := b.breaks(operator, verb, id); got.Changed != 1 {
			b.tb.Errorf("%s that breaks a lease = %+v, want one changed", verb, got)
		}
		b.wantReserved(operator)
		b.lost(leases, c, l)
	}
}

// leasedInOrder: who waits behind a message is woken by its end, and a leased one must not
// be: its handler runs.
func leasedInOrder(b *bench) {
	here, leases := b.leasing()
	if b.unordered(here) {
		return
	}
	order := []byte("order")
	first, second := claimFor("first", "1"), claimFor("second", "2")
	first.OrderKey, second.OrderKey = order, order
	earlier := b.record(here, changed(failureOf(first), func(f *stores.Failure) { f.DueIn = later }))
	f := leaseOf(second, b.record(here, changed(failureOf(second), func(f *stores.Failure) { f.DueIn = later })), "here/1", time.Hour)
	f.Placement = stores.PlacementParked
	l := stores.HeldLease{Key: second.Key, Version: b.record(here, f), Holder: "here/1"}
	b.commit(b.take(here, first, earlier))
	b.extends(leases, l, time.Hour)
	second.OrderKey = nil
	b.commit(b.take(here, second, l.Version))
}

// leasedStandsStill: of two handlers that both believe they hold the lease one completes, and
// what the other writes and says is not committed.
func leasedStandsStill(b *bench) {
	here, _ := b.leasing()
	elsewhere := b.open()
	says := b.h.Transact != nil
	under := func(c *middleware.InboxConfig) {
		c.HandlerTimeout = time.Second
		c.LeaseByHandler = map[string]middleware.LeaseConfig{consumer.Handler: {TTL: time.Second}}
		if says {
			c.Outputs = &middleware.Outputs{}
		}
	}
	writes := func(msg *message.Message, run int) error {
		if says {
			for _, id := range []string{"a", "b"} {
				m := message.NewMessageWithContext(msg.Context(), fmt.Sprint(id, " of run ", run), nil)
				if err := outbox.Publisher("kafka").Publish("t", m); err != nil {
					return err
				}
			}
		}
		return middleware.OnComplete(msg.Context(), func(ctx context.Context) error {
			return b.h.Write(ctx, Effect{Key: "stands still", Label: "first", Run: run})
		})
	}
	msg := message.NewMessage("stands still", []byte("payload"))
	begun, completed := make(chan struct{}), make(chan struct{})
	var keys [2]string
	stopped := make(chan answer, 1)
	go func() {
		stopped <- b.deliver(b.service(here, under).Middleware(func(msg *message.Message) ([]*message.Message, error) {
			keys[0], _ = middleware.IdempotencyKey(msg.Context())
			close(begun)
			<-completed
			return nil, writes(msg, 1)
		}), msg)
	}()
	<-begun
	a := b.deliver(b.service(elsewhere, under).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		keys[1], _ = middleware.IdempotencyKey(msg.Context())
		return nil, writes(msg, 2)
	}), msg)
	close(completed)
	if !a.acked {
		b.tb.Errorf("who took over is not acked: %v", a.err)
	}
	if a := <-stopped; !a.acked {
		b.tb.Errorf("who stood still is not acked: %v", a.err)
	}
	if got := b.effects("stands still"); len(got) != 1 || got[0].Run != 2 {
		b.tb.Errorf("effects %v are committed, want the one of who took over", got)
	}
	if waiting, ok := here.(stores.Outbox); ok && says {
		b.waiting(waiting, nil, "a of run 2", "b of run 2")
	}
	if keys[0] == "" || keys[0] != keys[1] {
		b.tb.Errorf("the idempotency keys are %q, want one", keys)
	}
}
