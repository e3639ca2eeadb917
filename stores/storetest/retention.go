package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func retentionChecks(h *Harness) []check {
	checks := []check{
		{name: "nothing goes that is not announced", run: func(b *bench) { b.purgeAnnounced() }},
		{name: "what was purged is stale", run: func(b *bench) { b.purgeStale() }},
		{name: "a row decides first", run: func(b *bench) { b.purgeRowFirst() }},
		{name: "what is in flight stays", run: func(b *bench) { b.purgeInFlight() }},
		{name: "ranges", run: func(b *bench) { b.purgeRanges() }},
		{name: "consumers are isolated", run: func(b *bench) { b.purgeIsolated() }},
		{name: "every kind, and nothing pending", run: func(b *bench) { b.purgeKinds() }},
		{name: "archive", run: func(b *bench) { b.purgeArchive() }},
		{name: "late deliveries", run: func(b *bench) { b.purgeLate() }},
		{name: "no older program after it", run: func(b *bench) { b.purgeKeepsOut() }},
	}
	if h.Transact != nil {
		checks = append(checks, check{name: "the outbox's history", run: func(b *bench) { b.purgeHistory() }})
	}
	return checks
}

// openPurger opens a store that purges.
func (b *bench) openPurger() (stores.Store, stores.Purger) {
	b.tb.Helper()
	store := b.open()
	purger, ok := store.(stores.Purger)
	if !ok {
		b.tb.Fatalf("a %T is no stores.Purger", store)
	}
	return store, purger
}

// watermark returns the consumer's, and the time by the database's clock.
func (b *bench) watermark(p stores.Purger, c stores.Consumer) (stores.Watermark, time.Time) {
	b.tb.Helper()
	all, err := p.Watermarks(b.ctx)
	if err != nil {
		b.tb.Fatalf("Watermarks: %v", err)
	}
	for _, w := range all.Consumers {
		if w.Consumer == c {
			return w, all.Now
		}
	}
	b.tb.Fatalf("Watermarks has no %s: %+v", c, all)
	return stores.Watermark{}, time.Time{}
}

func (b *bench) now(p stores.Purger) time.Time {
	b.tb.Helper()
	_, now := b.watermark(p, consumer)
	return now
}

// forget announces all that is there by now, and returns that time.
func (b *bench) forget(p stores.Purger, c stores.Consumer) time.Time {
	b.tb.Helper()
	_, now := b.watermark(p, c)
	if err := p.Announce(b.ctx, c, now); err != nil {
		b.tb.Fatalf("Announce: %v", err)
	}
	return now
}

func limits(kind stores.PurgeKind, now time.Time) []stores.PurgeLimit {
	if kind == stores.PurgePublished || kind == stores.PurgeAudited {
		return []stores.PurgeLimit{{Before: now}}
	}
	return []stores.PurgeLimit{{Consumer: consumer, Before: now}}
}

// purge goes through all ranges of a kind.
func (b *bench) purge(call func(stores.PurgeQuery) (stores.PurgeRange, error), q stores.PurgeQuery) (deleted int, found map[stores.Consumer]stores.PurgeFound) {
	b.tb.Helper()
	found = make(map[stores.Consumer]stores.PurgeFound)
	if q.Rows == 0 {
		q.Rows = 100
	}
	for range 10_000 {
		r, err := call(q)
		if err != nil {
			b.tb.Fatalf("a range of %s after %q: %v", q.Kind, q.After, err)
		}
		deleted += r.Deleted
		for _, f := range r.Found {
			sum := found[f.Consumer]
			sum.Rows, sum.Purgeable = sum.Rows+f.Rows, sum.Purgeable+f.Purgeable
			sum.Through, sum.Newest, sum.Before = latest(sum.Through, f.Through), latest(sum.Newest, f.Newest), latest(sum.Before, f.Before)
			for _, least := range []struct{ to, from *time.Time }{{&sum.Left, &f.Left}, {&sum.After, &f.After}} {
				if least.to.IsZero() || !least.from.IsZero() && least.from.Before(*least.to) {
					*least.to = *least.from
				}
			}
			found[f.Consumer] = sum
		}
		if q.After = r.Next; q.After == "" {
			return deleted, found
		}
	}
	b.tb.Fatalf("the ranges of %s never end", q.Kind)
	return 0, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (b *bench) purgeAll(p stores.Purger, kind stores.PurgeKind, now time.Time) int {
	b.tb.Helper()
	deleted, _ := b.purge(func(q stores.PurgeQuery) (stores.PurgeRange, error) { return p.Purge(b.ctx, q) },
		stores.PurgeQuery{Kind: kind, Limits: limits(kind, now)})
	return deleted
}

func (b *bench) purgeAnnounced() {
	store, p := b.openPurger()
	b.complete(store, claimFor("a", "a"))
	w, now := b.watermark(p, consumer)
	if !w.PurgedThrough.IsZero() || !w.AnnouncedAt.IsZero() {
		b.tb.Errorf("nothing was announced, and the watermark is %+v", w)
	}
	if deleted := b.purgeAll(p, stores.PurgeCompleted, now); deleted != 0 {
		b.tb.Errorf("%d rows are purged without an announcement", deleted)
	}
	if err := p.Announce(b.ctx, consumer, now.Add(-time.Hour)); err != nil {
		b.tb.Fatal(err)
	}
	if deleted := b.purgeAll(p, stores.PurgeCompleted, now); deleted != 0 {
		b.tb.Errorf("%d rows are purged that are younger than what is announced", deleted)
	}
	through := b.forget(p, consumer)
	for _, earlier := range []time.Duration{0, -time.Hour} { // nothing is taken back
		if err := p.Announce(b.ctx, consumer, through.Add(earlier)); err != nil {
			b.tb.Fatal(err)
		}
	}
	w, _ = b.watermark(p, consumer)
	if got := w.PurgedThrough.Sub(through); got != stores.ClockMargin || w.AnnouncedAt.Before(now) {
		b.tb.Errorf("announced through %s: the watermark is %+v", through, w)
	}
	if deleted := b.purgeAll(p, stores.PurgeCompleted, now.Add(-time.Hour)); deleted != 0 {
		b.tb.Errorf("%d rows are purged that are younger than the limit", deleted)
	}
	if deleted := b.purgeAll(p, stores.PurgeCompleted, b.now(p)); deleted != 1 || b.completed(claimFor("a", "a").Key) {
		b.tb.Errorf("%d rows are purged", deleted)
	}
}

func (b *bench) purgeStale() {
	store, p := b.openPurger()
	elsewhere := b.open()
	took := b.now(p)
	const many = 20
	for i := range many {
		c := claimFor(fmt.Sprint("old ", i), "x")
		c.Time = took
		b.complete(store, c)
	}
	through := b.forget(p, consumer)
	if deleted := b.purgeAll(p, stores.PurgeCompleted, through); deleted != many {
		b.tb.Errorf("%d rows are purged, want %d", deleted, many)
	}
	before := b.snapshot()
	unseen := store.Capabilities().StaleUnseen
	for i := range many {
		c := claimFor(fmt.Sprint("old ", i), "x")
		c.Time = took
		if i%2 == 1 {
			c.OrderKey = []byte("order")
		}
		if unseen {
			continue
		}
		for _, s := range []stores.Store{store, elsewhere} {
			if v := b.expect(s, c, stores.Stale); v.PurgedThrough.Sub(through) != stores.ClockMargin {
				b.tb.Errorf("purged through %s, and the verdict says %s", through, v.PurgedThrough)
			}
		}
	}
	b.unchanged(before, "a stale delivery")
	for i, fresh := range []time.Time{{}, through.Add(stores.ClockMargin), through.Add(time.Hour)} {
		c := claimFor(fmt.Sprint("fresh ", i), "x")
		c.Time = fresh
		b.complete(store, c)
	}
	if unseen {
		b.complete(store, claimFor("old 0", "x"))
	}
}

func (b *bench) purgeRowFirst() {
	store, p := b.openPurger()
	completed, failed, running := claimFor("completed", "x"), claimFor("failed", "failed"), claimFor("running", "x")
	b.complete(store, completed)
	version := b.fails(store, "failed")
	attempt := b.win(store, running)
	if store.Capabilities().SingleWriter { // nobody announces meanwhile
		b.rollback(attempt)
	}
	took := b.now(p).Add(-time.Hour)
	b.forget(p, consumer)
	completed.Time, failed.Time, running.Time = took, took, took
	b.expect(store, completed, stores.Duplicate)
	b.expect(store, failed, stores.Parked)
	if !store.Capabilities().SingleWriter {
		b.expect(store, running, stores.InFlight)
		b.commit(attempt)
		b.expect(store, running, stores.Duplicate)
	}
	b.commit(b.take(store, failed, version)) // its row is there
}

func (b *bench) purgeInFlight() {
	store, p := b.openPurger()
	if store.Capabilities().SingleWriter {
		if _, over, err := p.Overtaken(b.ctx, ""); !over || err != nil {
			b.tb.Errorf("Overtaken = %t, %v", over, err)
		}
		return
	}
	b.complete(store, claimFor("a", "a"))
	attempt := b.win(store, claimFor("running", "x"))
	b.tb.Cleanup(func() { _ = attempt.Rollback(context.WithoutCancel(b.ctx)) })
	through := b.forget(p, consumer)
	mark, over, err := p.Overtaken(b.ctx, "")
	if over || err != nil {
		b.tb.Errorf("an attempt runs: Overtaken = %t, %v", over, err)
	}
	if deleted := b.purgeAll(p, stores.PurgeCompleted, through); deleted != 1 { // it waits for nobody
		b.tb.Errorf("%d rows are purged", deleted)
	}
	younger := b.win(store, claimFor("younger", "x"))
	if _, over, err = p.Overtaken(b.ctx, mark); over || err != nil {
		b.tb.Errorf("an attempt still runs: Overtaken = %t, %v", over, err)
	}
	b.commit(attempt)
	if store.Capabilities().System == "postgresql" { // others tell by the time
		if _, over, err = p.Overtaken(b.ctx, mark); !over || err != nil {
			b.tb.Errorf("the attempt is over, and only a younger one runs: Overtaken = %t, %v", over, err)
		}
	}
	b.commit(younger)
}

func (b *bench) purgeRanges() {
	store, p := b.openPurger()
	const many = 60
	for i := range many {
		b.complete(store, claimFor(fmt.Sprint("range ", i), "x"))
	}
	through := b.forget(p, consumer)
	for !b.now(p).After(through) { // a clock may have milliseconds
		<-time.After(time.Millisecond)
	}
	b.complete(store, claimFor("later", "x"))
	for _, rows := range []int{1, 7, 1000} {
		_, found := b.purge(func(q stores.PurgeQuery) (stores.PurgeRange, error) { return p.Survey(b.ctx, q) },
			stores.PurgeQuery{Kind: stores.PurgeCompleted, Limits: limits(stores.PurgeCompleted, through), Recent: through, Rows: rows})
		f := found[consumer]
		if f.Rows != many+1 || f.Purgeable != many || f.Through.After(through) || !f.Newest.After(through) || !f.Before.Equal(f.Through) ||
			!f.Left.Equal(f.Newest) || !f.After.Equal(f.Newest) {
			b.tb.Errorf("ranges of %d rows: %+v", rows, f)
		}
	}
	deleted, _ := b.purge(func(q stores.PurgeQuery) (stores.PurgeRange, error) { return p.Purge(b.ctx, q) },
		stores.PurgeQuery{Kind: stores.PurgeCompleted, Limits: limits(stores.PurgeCompleted, through), Rows: 7})
	if deleted != many || !b.completed(claimFor("later", "x").Key) {
		b.tb.Errorf("%d rows are purged, want %d", deleted, many)
	}
	for _, q := range []stores.PurgeQuery{{Kind: "pending", Rows: 1}, {Kind: stores.PurgeCompleted}, {Kind: stores.PurgeFailed, Rows: 1, After: "x"}} {
		if _, err := p.Purge(b.ctx, q); err == nil {
			b.tb.Errorf("Purge(%+v) returned no error", q)
		}
	}
}

func (b *bench) purgeIsolated() {
	store, p := b.openPurger()
	other := stores.Consumer{Service: consumer.Service, Handler: "another"}
	b.register(store, other)
	theirs := claimFor("a", "a")
	theirs.Key.Consumer = other
	b.complete(store, claimFor("a", "a"))
	b.complete(store, theirs)
	took := b.now(p)
	through := b.forget(p, consumer)
	if deleted := b.purgeAll(p, stores.PurgeCompleted, through); deleted != 1 || !b.completed(theirs.Key) {
		b.tb.Errorf("%d rows are purged", deleted)
	}
	theirs.Key.ID, theirs.Time = []byte("b"), took
	b.complete(store, theirs)
}

func (b *bench) purgeKinds() {
	store, p := b.openPurger()
	b.fails(store, "pending")
	b.fails(store, "failed", func(f *stores.Failure) { f.Status, f.DueIn = stores.StatusFailed, 0 })
	b.fails(store, "discarded")
	b.change(store, stores.VerbDiscard, stores.Filter{ID: []byte("discarded")}, 1)
	q := message1()
	b.keep(store, q)
	q.ID = []byte("of nobody")
	b.keep(store, q)
	b.exec("UPDATE millpond_quarantine SET consumer = 0 WHERE seen = 1 AND id = (SELECT x.id FROM (SELECT max(id) AS id FROM millpond_quarantine) x)")
	now := b.now(p)
	for _, kind := range []stores.PurgeKind{stores.PurgeFailed, stores.PurgeDiscarded} {
		if deleted := b.purgeAll(p, kind, now); deleted != 0 {
			b.tb.Errorf("%d %s messages are purged without an announcement", deleted, kind)
		}
	}
	b.forget(p, consumer)
	for kind, id := range map[stores.PurgeKind]string{
		stores.PurgeFailed: "failed", stores.PurgeDiscarded: "discarded", stores.PurgeQuarantined: "", stores.PurgeAudited: "",
	} {
		if deleted := b.purgeAll(p, kind, now.Add(-time.Hour)); deleted != 0 {
			b.tb.Errorf("%d %s rows are purged that are younger", deleted, kind)
		}
		if deleted := b.purgeAll(p, kind, now); deleted != 1 {
			b.tb.Errorf("%d %s rows are purged, want one", deleted, kind)
		}
		if id != "" {
			b.look(store, claimFor(id, id), stores.Claimable)
		}
	}
	ofNobody := stores.PurgeQuery{Kind: stores.PurgeQuarantined, Limits: []stores.PurgeLimit{{Before: now}}}
	if deleted, _ := b.purge(func(q stores.PurgeQuery) (stores.PurgeRange, error) { return p.Purge(b.ctx, q) }, ofNobody); deleted != 1 {
		b.tb.Errorf("%d quarantined rows of no consumer are purged, want one", deleted)
	}
	b.paired()
	if left := b.failures(); len(left) != 1 || len(b.quarantined()) != 0 {
		b.tb.Errorf("%d failures and %d quarantined messages are left", len(left), len(b.quarantined()))
	}
	if b.failure("pending").state.Status != stores.StatusPending {
		b.tb.Error("the pending message is gone")
	}
	if audit, err := store.Audit(b.ctx, 0, 10); err != nil || len(audit) != 0 {
		b.tb.Errorf("the audit has %v, %v", audit, err)
	}
}

func (b *bench) purgeArchive() {
	store, p := b.openPurger()
	b.complete(store, claimFor("completed", "x"))
	b.fails(store, "failed", func(f *stores.Failure) { f.Status, f.DueIn = stores.StatusFailed, 0 })
	q := message1()
	b.keep(store, q)
	through := b.forget(p, consumer)
	before := b.snapshot()
	for kind, want := range map[stores.PurgeKind]stores.PurgedRow{
		stores.PurgeCompleted:   {ID: []byte("completed")},
		stores.PurgeFailed:      {ID: []byte("failed"), Payload: failureOf(claimFor("failed", "failed")).Content.Payload, Topic: topic},
		stores.PurgeQuarantined: {ID: q.ID, Payload: q.Payload, Topic: q.Topic, Class: string(q.Reason), Metadata: q.Metadata},
	} {
		var shown []stores.PurgedRow
		query := stores.PurgeQuery{Kind: kind, Limits: limits(kind, through), Rows: 100}
		refused := errors.New("the disk is full")
		query.Archive = func(rows []stores.PurgedRow) error { return refused }
		if _, err := p.Purge(b.ctx, query); !errors.Is(err, stores.ErrArchive) || !errors.Is(err, refused) {
			b.tb.Errorf("%s: an archive that refuses: %v", kind, err)
		}
		b.unchanged(before, "a purge that the archive has refused")
		query.Archive = func(rows []stores.PurgedRow) error {
			shown = rows
			return nil
		}
		deleted, _ := b.purge(func(q stores.PurgeQuery) (stores.PurgeRange, error) { return p.Purge(b.ctx, q) }, query)
		before = b.snapshot()
		if len(shown) != 1 || deleted != 1 {
			b.tb.Fatalf("%s: %d rows are purged, the archive got %+v", kind, deleted, shown)
		}
		got := shown[0]
		if got.Kind != kind || got.Consumer != consumer || string(got.ID) != string(want.ID) || got.Time.IsZero() || string(got.Payload) != string(want.Payload) ||
			got.Class != want.Class && want.Class != "" || len(want.Metadata) > 0 && fmt.Sprint(got.Metadata) != fmt.Sprint(want.Metadata) {
			b.tb.Errorf("%s: the archive got %+v, want %+v", kind, got, want)
		}
	}
}

func (b *bench) purgeLate() {
	_, p := b.openPurger()
	now := b.now(p).Truncate(time.Millisecond)
	note := func(at, want time.Time) {
		b.tb.Helper()
		if err := p.NoteLate(b.ctx, consumer, at); err != nil {
			b.tb.Fatal(err)
		}
		if w, _ := b.watermark(p, consumer); !w.LateTime.Equal(want) || w.LateAt.Before(now) {
			b.tb.Errorf("noted %s: %+v, want %s", at, w, want)
		}
	}
	note(now.Add(-time.Hour), now.Add(-time.Hour))
	note(now.Add(-3*time.Hour), now.Add(-3*time.Hour))
	note(now.Add(-2*time.Hour), now.Add(-3*time.Hour))
	if err := p.AcceptStale(b.ctx, consumer, time.Hour); err != nil {
		b.tb.Fatal(err)
	}
	if w, at := b.watermark(p, consumer); w.StaleUntil.Before(at.Add(59*time.Minute)) || w.StaleUntil.After(at.Add(time.Hour)) {
		b.tb.Errorf("accepted for an hour: until %s, it is %s", w.StaleUntil, at)
	}
	wantErr(b.tb, "AcceptStale of nobody", p.AcceptStale(b.ctx, stores.Consumer{Service: "no", Handler: "body"}, time.Hour), stores.ErrChanged)
}

// purgeKeepsOut: a program whose claims do not look at the time would run what was purged.
func (b *bench) purgeKeepsOut() {
	_, p := b.openPurger()
	b.forget(p, consumer)
	var compatible int
	if err := b.db.Admin.QueryRowContext(b.ctx, "SELECT max(compatible) FROM millpond_schema").Scan(&compatible); err != nil {
		b.tb.Fatal(err)
	}
	if compatible < 5 {
		b.tb.Errorf("programs that know %d steps may still use the tables", compatible)
	}
	b.open() // this one may
}

func (b *bench) purgeHistory() {
	store, p := b.openPurger()
	outbox, ok := store.(stores.Outbox)
	if !ok {
		b.tb.Fatalf("a %T is no stores.Outbox", store)
	}
	b.say(store, stores.PublisherConfig{}, "a", "b")
	pending := b.pending(outbox, nil).Outputs
	if err := outbox.Settle(b.ctx, stores.Settlement{Published: []int64{pending[0].Number}, Keep: true}); err != nil {
		b.tb.Fatal(err)
	}
	now := b.now(p)
	if deleted := b.purgeAll(p, stores.PurgePublished, now.Add(-time.Hour)); deleted != 0 {
		b.tb.Errorf("%d are purged that are younger", deleted)
	}
	if deleted := b.purgeAll(p, stores.PurgePublished, now); deleted != 1 {
		b.tb.Errorf("%d are purged, want 1", deleted)
	}
	if left := b.pending(outbox, nil).Outputs; len(left) != 1 {
		b.tb.Errorf("%d outputs are pending", len(left))
	}
}
