package pgtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Tour has a store of [Stock], whose tables are there, send the statements of claims, of leases of
// messages, of failures and retries, of operators' decisions and of the quarantine. It sends none of
// the outbox, the purge, attendance, the leases of relay and sweeper, erasing or Examine. suspect
// makes an attempt one whose commit asks whose transaction it is.
func Tour(tb testing.TB, s stores.Store, suspect func(stores.Attempt)) {
	tb.Helper()
	Deliveries(tb, s, suspect)
	t := tour{tb: tb, s: s}
	t.decisions()
	t.quarantine()
}

// Deliveries is the part of [Tour] without operators and the quarantine.
func Deliveries(tb testing.TB, s stores.Store, suspect func(stores.Attempt)) {
	tb.Helper()
	t := tour{tb: tb, s: s}
	t.must("Register", s.Register(tb.Context(), stores.Registration{Consumer: Stock, Topic: "orders"}))
	t.must("Register", s.Register(tb.Context(), stores.Registration{Consumer: Stock, Topic: "returns", AcceptTopic: true}))
	t.claims(suspect)
	t.leased()
	t.failures()
	if resolver, ok := s.(stores.Resolver); ok {
		_, err := resolver.Resolve(tb.Context(), Claim("plain").Key)
		t.must("Resolve", err)
	}
}

// Listens has a store listen for retries, on a connection that it takes from its pool for good.
func Listens(tb testing.TB, s stores.Store) {
	tb.Helper()
	waker, ok := s.(stores.Waker)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	if err := waker.Listen(ctx, cancel); !errors.Is(err, context.Canceled) && !errors.Is(err, errors.ErrUnsupported) {
		tb.Fatalf("Listen: %v", err)
	}
}

type tour struct {
	tb testing.TB
	s  stores.Store
}

func (t *tour) must(what string, err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatalf("%s: %v", what, err)
	}
}

// begin makes a claim, whose outcome must be that.
func (t *tour) begin(c stores.Claim, want stores.Outcome) stores.Attempt {
	t.tb.Helper()
	a, v, err := t.s.Begin(t.tb.Context(), c)
	t.must("Begin", err)
	if v.Outcome != want {
		t.tb.Fatalf("Begin of %q: %v, not %v", c.Key.ID, v.Outcome, want)
	}
	return a
}

func (t *tour) leased() {
	t.tb.Helper()
	leases, ok := t.s.(stores.LeaseInbox)
	if !ok {
		t.tb.Fatalf("%T has no leases", t.s)
	}
	c := Claim("leased")
	version, err := t.s.Record(t.tb.Context(), stores.Failure{
		Key: c.Key, Fingerprint: c.Fingerprint, Status: stores.StatusPending, Placement: stores.PlacementRedelivered,
		Attempts: 1, Start: true, Holder: "here", DueIn: time.Minute,
	})
	t.must("Record", err)
	held := stores.HeldLease{Key: c.Key, Version: version, Holder: "here"}
	t.must("Extend", leases.Extend(t.tb.Context(), held, time.Minute))
	t.must("RecordStep", leases.RecordStep(t.tb.Context(), held, stores.Step{Name: "step", Result: []byte("1")}))
	_, err = leases.Steps(t.tb.Context(), held)
	t.must("Steps", err)
	c.Take = version
	t.must("Commit", t.begin(c, stores.Claimed).Commit(t.tb.Context()))
}

func (t *tour) claims(suspect func(stores.Attempt)) {
	t.tb.Helper()
	plain, unbounded, ordered, orderedUnbounded := Claim("plain"), Claim("unbounded"), Claim("ordered"), Claim("ordered, unbounded")
	unbounded.Bound, orderedUnbounded.Bound = 0, 0
	ordered.OrderKey, orderedUnbounded.OrderKey = []byte("a"), []byte("a")
	for _, c := range []stores.Claim{plain, unbounded, ordered, orderedUnbounded} {
		a := t.begin(c, stores.Claimed)
		t.begin(c, stores.InFlight)
		suspect(a)
		t.must("Commit", a.Commit(t.tb.Context()))
		t.begin(c, stores.Duplicate)
		_, err := t.s.Look(t.tb.Context(), c.Key, c.Fingerprint)
		t.must("Look", err)
		if escapable, ok := a.(stores.Escapable); ok {
			_, err := escapable.Escaped(t.tb.Context())
			t.must("Escaped", err)
		}
	}
	a := t.begin(Claim("rolled back"), stores.Claimed)
	suspect(a)
	t.must("Rollback", a.Rollback(t.tb.Context()))
}

// failure is one that is recorded first, and due at once.
func failure(id string) stores.Failure {
	c := Claim(id)
	return stores.Failure{
		Key: c.Key, Fingerprint: c.Fingerprint, Status: stores.StatusPending, Placement: stores.PlacementParked, Attempts: 1,
		Class: stores.ClassTransient, Error: "no answer", Cause: "no answer", Topic: "orders", Coordinates: "orders/0/1", OrderKey: []byte("b"),
		Content: &stores.Content{State: stores.ContentKept, UUID: id, Metadata: map[string]string{"a": "b"}, Payload: []byte(id)},
	}
}

func (t *tour) record(f stores.Failure) int64 {
	t.tb.Helper()
	version, err := t.s.Record(t.tb.Context(), f)
	t.must("Record", err)
	return version
}

func (t *tour) due() []stores.Retry {
	t.tb.Helper()
	due, err := t.s.Due(t.tb.Context(), stores.DueQuery{Consumer: Stock, Limit: 10, Reserve: time.Minute})
	t.must("Due", err)
	if len(due) == 0 {
		t.tb.Fatal("nothing is due")
	}
	return due
}

func (t *tour) failures() {
	t.tb.Helper()
	first := failure("first")
	t.record(first)
	second := failure("second")
	t.record(second)
	behind := Claim("behind")
	behind.OrderKey = first.OrderKey
	t.begin(behind, stores.Behind)
	_, err := t.s.Backlog(t.tb.Context(), 10)
	t.must("Backlog", err)
	t.must("Release", t.s.Release(t.tb.Context(), t.due()))
	found := t.due()[0]
	late := Claim("second")
	late.OrderKey = first.OrderKey
	late.Take = 1
	t.begin(late, stores.Parked)
	first.Version, first.Start = found.State.Version, true
	first.Version = t.record(first)
	first.Start, first.Content = false, nil
	first.Version = t.record(first)
	take := Claim("first")
	take.OrderKey, take.Take = first.OrderKey, first.Version
	t.must("Commit", t.begin(take, stores.Claimed).Commit(t.tb.Context()))
	redelivered := failure("redelivered")
	redelivered.Placement, redelivered.OrderKey = stores.PlacementRedelivered, nil
	t.record(redelivered)
	t.must("Commit", t.begin(Claim("redelivered"), stores.Claimed).Commit(t.tb.Context()))
	bare := failure("not kept")
	bare.Status, bare.Placement, bare.Content = stores.StatusFailed, stores.PlacementRedelivered, nil
	t.must("KeepContent", t.s.KeepContent(t.tb.Context(), bare.Key, t.record(bare), stores.Content{State: stores.ContentKept, Payload: []byte("a")}))
}

func (t *tour) decisions() {
	t.tb.Helper()
	failed := failure("failed")
	failed.Status = stores.StatusFailed
	t.record(failed)
	filter := stores.Filter{
		Service: Stock.Service, Handler: Stock.Handler, Class: stores.ClassTransient, Cause: "no answer", Topic: "orders", ErrorContains: "answer",
		ID: []byte("failed"), Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour), Status: []stores.Status{stores.StatusFailed},
	}
	page, err := t.s.Messages(t.tb.Context(), stores.MessageQuery{Filter: filter, Before: 1 << 40, Limit: 10})
	t.must("Messages", err)
	if len(page) != 1 {
		t.tb.Fatalf("%d messages match", len(page))
	}
	_, err = t.s.Message(t.tb.Context(), page[0].Number)
	t.must("Message", err)
	for _, id := range []string{"failed", "plain"} {
		_, err = t.s.Find(t.tb.Context(), Claim(id).Key)
		t.must("Find", err)
	}
	_, err = t.s.Causes(t.tb.Context(), filter, 10)
	t.must("Causes", err)
	_, _, err = t.s.Matching(t.tb.Context(), filter, 10)
	t.must("Matching", err)
	_, err = t.s.Counts(t.tb.Context(), 10)
	t.must("Counts", err)
	_, err = t.s.Consumers(t.tb.Context())
	t.must("Consumers", err)
	filter.Numbers, filter.Status = []int64{page[0].Number}, []stores.Status{stores.StatusPending, stores.StatusFailed, stores.StatusDiscarded}
	for _, verb := range []stores.Verb{stores.VerbRetry, stores.VerbDiscard, stores.VerbResolve} {
		changed, err := t.s.Change(t.tb.Context(), stores.Change{Verb: verb, Filter: filter, Actor: "somebody", Reason: "a tour", Limit: 10})
		t.must("Change", err)
		if changed.Changed != 1 {
			t.tb.Fatalf("%s has changed %d", verb, changed.Changed)
		}
	}
	_, err = t.s.Audit(t.tb.Context(), 1<<40, 10)
	t.must("Audit", err)
}

func (t *tour) quarantine() {
	t.tb.Helper()
	for _, id := range []string{"strange", "stranger"} {
		t.must("Quarantine", t.s.Quarantine(t.tb.Context(), stores.Quarantined{
			Consumer: Stock, ID: []byte(id), Reason: stores.ReasonConflict, Fingerprint: Claim(id).Fingerprint, Topic: "orders", Payload: []byte(id),
		}))
	}
	rows, err := t.s.Quarantined(t.tb.Context(), stores.QuarantineQuery{
		Service: Stock.Service, Handler: Stock.Handler, Reason: stores.ReasonConflict, Before: 1 << 40, Limit: 10,
	})
	t.must("Quarantined", err)
	if len(rows) != 2 {
		t.tb.Fatalf("%d rows in quarantine", len(rows))
	}
	for _, d := range []stores.Decision{
		{Verb: stores.VerbReject, RowID: rows[0].RowID}, {Verb: stores.VerbReopen, RowID: rows[0].RowID}, {Verb: stores.VerbRelease, RowID: rows[1].RowID},
	} {
		t.must(string(d.Verb), t.s.Decide(t.tb.Context(), d))
	}
}
