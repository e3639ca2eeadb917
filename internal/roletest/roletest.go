// Package roletest has stores do what the accounts behind them are for.
package roletest

import (
	"errors"
	"testing"
	"time"

	"github.com/millpond-go/millpond/stores"
)

var consumer = stores.Consumer{Service: "inventory", Handler: "stock"}

// Accounts are stores on the same tables by different accounts.
type Accounts struct {
	Service, Operator, Reader stores.Store
	// Emit writes two outputs by the service's account.
	Emit func()
}

// Serve runs deliveries, a retry worker and a relay by the service's account, repairs and
// erasures by the operator's, and lists by the reader's.
func Serve(t *testing.T, a Accounts) {
	t.Helper()
	s := session{t}
	for _, account := range []stores.Store{a.Service, a.Operator, a.Reader} {
		s.must("Validate", account.Validate(t.Context()))
	}
	s.deliver(a.Service)
	s.repair(a.Operator)
	s.retry(a.Service)
	s.relay(a)
	s.list(a.Reader)
	if _, err := a.Reader.Messages(t.Context(), stores.MessageQuery{Limit: 1}); err == nil {
		t.Error("the reader may tell the size of payloads")
	}
}

type session struct{ *testing.T }

func (s session) must(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func claim(id string) stores.Claim {
	return stores.Claim{
		Key: stores.Key{Consumer: consumer, ID: []byte(id)}, Bound: time.Minute,
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte(id)),
	}
}

func (s session) run(on stores.Store, c stores.Claim) {
	s.Helper()
	a, v, err := on.Begin(s.Context(), c)
	s.must("Begin", err)
	if v.Outcome != stores.Claimed {
		s.Fatalf("Begin: %v", v.Outcome)
	}
	s.must("Commit", a.Commit(s.Context()))
}

func failure(id string, status stores.Status) stores.Failure {
	c := claim(id)
	return stores.Failure{
		Key: c.Key, Fingerprint: c.Fingerprint, Status: status, Placement: stores.PlacementParked, Attempts: 1,
		Class: stores.ClassTransient, Cause: "no answer", Error: "no answer", Topic: "orders", Coordinates: "orders/0/1",
		Content: &stores.Content{State: stores.ContentKept, UUID: id, Payload: []byte("secret")},
	}
}

func (s session) deliver(on stores.Store) {
	s.Helper()
	s.must("Register", on.Register(s.Context(), stores.Registration{Consumer: consumer, Topic: "orders"}))
	s.must("Register", on.Register(s.Context(), stores.Registration{Consumer: consumer, Topic: "returns", AcceptTopic: true}))
	s.run(on, claim("plain"))
	_, v, err := on.Begin(s.Context(), claim("plain"))
	s.must("Begin", err)
	if v.Outcome != stores.Duplicate {
		s.Fatalf("a second delivery is %v", v.Outcome)
	}
	for _, f := range []stores.Failure{failure("pending", stores.StatusPending), failure("dead", stores.StatusFailed), failure("given up", stores.StatusFailed), failure("done by hand", stores.StatusFailed)} {
		_, err := on.Record(s.Context(), f)
		s.must("Record", err)
	}
	s.lease(on)
	for _, id := range []string{"strange", "stranger"} {
		s.must("Quarantine", on.Quarantine(s.Context(), stores.Quarantined{
			Consumer: consumer, ID: []byte(id), Reason: stores.ReasonConflict, Fingerprint: claim(id).Fingerprint, Topic: "orders", Payload: []byte(id),
		}))
	}
	if resolver, ok := on.(stores.Resolver); ok {
		_, err := resolver.Resolve(s.Context(), claim("plain").Key)
		s.must("Resolve", err)
	}
}

// lease runs a message under a lease, with a step.
func (s session) lease(on stores.Store) {
	s.Helper()
	leases, ok := on.(stores.LeaseInbox)
	if !ok {
		s.Fatalf("%T has no leases", on)
	}
	f := failure("leased", stores.StatusPending)
	f.Start, f.Holder, f.DueIn = true, "here", time.Minute
	version, err := on.Record(s.Context(), f)
	s.must("Record", err)
	held := stores.HeldLease{Key: f.Key, Version: version, Holder: f.Holder}
	s.must("Extend", leases.Extend(s.Context(), held, time.Minute))
	s.must("RecordStep", leases.RecordStep(s.Context(), held, stores.Step{Name: "step", Result: []byte("1")}))
	_, err = leases.Steps(s.Context(), held)
	s.must("Steps", err)
	c := claim("leased")
	c.Take = version
	s.run(on, c)
}

func (s session) repair(on stores.Store) {
	s.Helper()
	for id, verb := range map[string]stores.Verb{"dead": stores.VerbRetry, "given up": stores.VerbDiscard, "done by hand": stores.VerbResolve} {
		m, err := on.Find(s.Context(), claim(id).Key)
		s.must("Find", err)
		if string(m.Payload) != "secret" {
			s.Fatalf("the operator sees %q", m.Payload)
		}
		changed, err := on.Change(s.Context(), stores.Change{Verb: verb, Filter: stores.Filter{Numbers: []int64{m.Number}}, Actor: "ada", Limit: 1})
		s.must(string(verb), err)
		if changed.Changed != 1 {
			s.Fatalf("%s: %+v", verb, changed)
		}
	}
	erased, err := on.Change(s.Context(), stores.Change{Verb: stores.VerbErase, Filter: stores.Filter{ID: claim("given up").Key.ID}, Actor: "ada", Limit: 1})
	s.must("erase", err)
	if erased.Changed != 1 {
		s.Fatalf("erase: %+v", erased)
	}
	rows, err := on.Quarantined(s.Context(), stores.QuarantineQuery{Limit: 10})
	s.must("Quarantined", err)
	if len(rows) != 2 {
		s.Fatalf("%d rows in quarantine", len(rows))
	}
	s.must("Decide", on.Decide(s.Context(), stores.Decision{Verb: stores.VerbReject, RowID: rows[0].RowID}))
	s.must("Decide", on.Decide(s.Context(), stores.Decision{Verb: stores.VerbReopen, RowID: rows[0].RowID}))
	s.must("Decide", on.Decide(s.Context(), stores.Decision{Verb: stores.VerbRelease, RowID: rows[1].RowID}))
}

// retry runs what is due: two messages, and the one that was released.
func (s session) retry(on stores.Store) {
	s.Helper()
	ran := 0
	for {
		due, err := on.Due(s.Context(), stores.DueQuery{Consumer: consumer, Limit: 1, Reserve: time.Minute})
		s.must("Due", err)
		if len(due) == 0 {
			break
		}
		s.must("Renew", on.Renew(s.Context(), due, time.Minute))
		c := claim(string(due[0].Key.ID))
		c.Key, c.Fingerprint, c.Take = due[0].Key, stores.Fingerprint{}, due[0].State.Version
		s.run(on, c)
		ran++
	}
	if ran != 3 {
		s.Fatalf("%d retries", ran)
	}
	_, err := on.Backlog(s.Context(), 1)
	s.must("Backlog", err)
}

func (s session) relay(a Accounts) {
	s.Helper()
	a.Emit()
	outbox, ok := a.Service.(stores.Outbox)
	if !ok {
		s.must("an outbox", errors.ErrUnsupported)
	}
	units := make([]int64, stores.OutboxBuckets)
	for i := range units {
		units[i] = int64(i)
	}
	lease := stores.LeaseRequest{Name: "outbox", Owner: "relay", Units: units, Limit: len(units), TTL: time.Minute}
	for range 2 {
		_, err := outbox.Lease(s.Context(), lease)
		s.must("Lease", err)
	}
	pending, err := outbox.Pending(s.Context(), stores.PendingQuery{Buckets: units, Limit: 10, Bytes: 1 << 20})
	s.must("Pending", err)
	if len(pending.Outputs) != 2 {
		s.Fatalf("%d outputs", len(pending.Outputs))
	}
	s.must("Settle", outbox.Settle(s.Context(), stores.Settlement{
		Published: []int64{pending.Outputs[0].Number}, Keep: true,
		Refused: []stores.RefusedOutput{{Number: pending.Outputs[1].Number, Attempts: 1, Error: "no", Failed: true}},
	}))
	s.must("Unlease", outbox.Unlease(s.Context(), lease.Name, lease.Owner, units))
	s.repairOutputs(a.Operator)
}

// repairOutputs does what is done to outputs: one was published, and one has failed.
func (s session) repairOutputs(on stores.Store) {
	s.Helper()
	outbox, ok := on.(stores.OutboxInspector)
	if !ok {
		s.must("an outbox", errors.ErrUnsupported)
	}
	for _, c := range []stores.OutputChange{
		{Verb: stores.VerbReplayOutput, Filter: stores.OutputFilter{State: stores.OutputPublished}},
		{Verb: stores.VerbRetryOutput, Filter: stores.OutputFilter{State: stores.OutputFailed}},
		{Verb: stores.VerbDiscardOutput, Filter: stores.OutputFilter{State: stores.OutputPending}},
		{Verb: stores.VerbEraseOutput, Filter: stores.OutputFilter{State: stores.OutputPublished}},
	} {
		c.Actor, c.Limit = "ada", 10
		changed, err := outbox.ChangeOutputs(s.Context(), c)
		s.must(string(c.Verb), err)
		if changed.Changed == 0 {
			s.Fatalf("%s: %+v", c.Verb, changed)
		}
	}
}

func (s session) list(on stores.Store) {
	s.Helper()
	counts, err := on.Counts(s.Context(), 10)
	s.must("Counts", err)
	if len(counts) == 0 {
		s.Fatal("nothing is counted")
	}
	_, err = on.Causes(s.Context(), stores.Filter{}, 10)
	s.must("Causes", err)
	_, err = on.Audit(s.Context(), 0, 10)
	s.must("Audit", err)
	_, err = on.Consumers(s.Context())
	s.must("Consumers", err)
	_, err = on.Backlog(s.Context(), 10)
	s.must("Backlog", err)
}
