package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// What every store does with failed messages is in the conformance suite. Here is what
// only this one can do wrong.

// parked returns the first failure of a claim's message, due at once.
func parked(c stores.Claim) stores.Failure {
	return stores.Failure{
		Key: c.Key, Fingerprint: c.Fingerprint, TraceParent: c.TraceParent,
		Status: stores.StatusPending, Placement: stores.PlacementParked, Attempts: 1,
		Class: stores.ClassTransient, Error: "no", Cause: stores.CauseOf(stores.ClassTransient, "no"),
		Topic: "orders", Coordinates: "orders/0/1", OrderKey: c.OrderKey,
		Content: &stores.Content{State: stores.ContentKept, UUID: "u", Metadata: map[string]string{"a": "b"}, Payload: []byte("payload")},
	}
}

func record(t *testing.T, s *postgres.Store, f stores.Failure) int64 {
	t.Helper()
	version, err := s.Record(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

func due(t *testing.T, s *postgres.Store, limit int) []stores.Retry {
	t.Helper()
	found, err := s.Due(t.Context(), stores.DueQuery{Consumer: pgtest.Stock, Limit: limit, Reserve: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func inStock(id string) stores.Filter {
	return stores.Filter{Service: pgtest.Stock.Service, Handler: pgtest.Stock.Handler, ID: []byte(id)}
}

// promptly returns a context that ends long before any wait for a lock would.
func promptly(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// leftAlone fails unless all calls about a pending message return at once and change
// nothing, and returns what a delivery of it is told.
func leftAlone(t *testing.T, s *postgres.Store, c stores.Claim, version int64) stores.Outcome {
	t.Helper()
	ctx := promptly(t)
	for _, v := range []int64{0, version} {
		f := parked(c)
		f.Version = v
		if _, err := s.Record(ctx, f); !errors.Is(err, stores.ErrChanged) {
			t.Errorf("Record with version %d: %v", v, err)
		}
	}
	taking := c
	taking.Take = version
	a, v, err := s.Begin(ctx, taking)
	if err != nil || a != nil {
		t.Errorf("Begin with Take: %v, %v", v.Outcome, err)
	}
	for _, verb := range []stores.Verb{stores.VerbRetry, stores.VerbDiscard} {
		done, err := s.Change(ctx, stores.Change{Verb: verb, Filter: inStock(string(c.Key.ID)), Limit: 10})
		if err != nil || done.Changed != 0 || done.Busy+done.Reserved != 1 {
			t.Errorf("%s: %+v, %v", verb, done, err)
		}
	}
	if found, err := s.Due(ctx, stores.DueQuery{Consumer: pgtest.Stock, Limit: 10, Reserve: time.Minute}); err != nil || len(found) != 0 {
		t.Errorf("Due: %v, %v", found, err)
	}
	if _, err := s.Look(ctx, c.Key, c.Fingerprint); err != nil {
		t.Errorf("Look: %v", err)
	}
	a, v, err = s.Begin(ctx, c)
	if err != nil || a != nil {
		t.Errorf("Begin: %v, %v", v.Outcome, err)
	}
	return v.Outcome
}

func TestNothingWaitsForATakeover(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, placement := range []stores.Placement{stores.PlacementParked, stores.PlacementRedelivered} {
		c := pgtest.Claim("taken " + placement.String())
		f := parked(c)
		f.Placement = placement
		version := record(t, s, f)
		c.Take = version
		a, tx := begin(t, s, c)
		exec(t, tx, insertEffect, "taken")
		c.Take = 0
		want := map[stores.Placement]stores.Outcome{stores.PlacementParked: stores.Parked, stores.PlacementRedelivered: stores.InFlight}
		if got := leftAlone(t, s, c, version); got != want[placement] {
			t.Errorf("%s: a delivery is told %s", placement, got)
		}
		if err := a.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v := look(t, s, c); v.Failure.Version != version || v.Failure.Attempts != 1 {
			t.Errorf("%s: after the rollback: %+v", placement, v.Failure)
		}
		c.Take = version
		a, _ = begin(t, s, c)
		if err := a.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v := look(t, s, c); v.Outcome != stores.Duplicate {
			t.Errorf("%s: after the commit: %s", placement, v.Outcome)
		}
	}
}

func TestNothingWaitsForALockOnTheRow(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := pgtest.Claim("locked")
	record(t, s, parked(c))
	tx, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	reserved := due(t, s, 10)
	exec(t, tx, "SELECT FROM millpond_failure FOR UPDATE")
	if err := s.Release(promptly(t), reserved); err != nil {
		t.Errorf("Release: %v", err)
	}
	leftAlone(t, s, c, reserved[0].State.Version)
}

// Deliveries and operators take the same lock, though one computes it in SQL.
func TestNothingWaitsForTheLockOfAKey(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := pgtest.Claim("key \x00\xff")
	version := record(t, s, parked(c))
	tx, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	exec(t, tx, "SELECT pg_advisory_xact_lock("+fmt.Sprintf(postgres.LockKeyText, "$1")+") FROM millpond_failure f", s.LockPrefix())
	taking := c
	taking.Take = version
	if v := pgtest.Verdict(t, s, taking); v.Outcome != stores.InFlight {
		t.Errorf("a takeover: %s", v.Outcome)
	}
	f := parked(c)
	f.Version = version
	if _, err := s.Record(promptly(t), f); !errors.Is(err, stores.ErrChanged) {
		t.Errorf("Record: %v", err)
	}
	done, err := s.Change(promptly(t), stores.Change{Verb: stores.VerbRetry, Filter: inStock(string(c.Key.ID)), Limit: 10})
	if err != nil || done.Changed != 0 || done.Busy+done.Reserved != 1 {
		t.Errorf("Change: %+v, %v", done, err)
	}
}

// The successor in the order of its key is locked as long as a takeover runs.
func TestNothingWaitsForTheSuccessorOfATakeover(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	first, second := pgtest.Claim("first"), pgtest.Claim("second")
	first.OrderKey, second.OrderKey = []byte("order"), []byte("order")
	first.Take = record(t, s, parked(first))
	f := parked(second)
	f.DueIn = time.Hour
	version := record(t, s, f)
	a, _ := begin(t, s, first)
	if got := leftAlone(t, s, second, version); got != stores.Parked {
		t.Errorf("a delivery is told %s", got)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found := due(t, s, 10); len(found) != 1 || string(found[0].Key.ID) != "second" {
		t.Errorf("due after the first: %v", found)
	}
}

func TestTakeoverProvesItsCommit(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := pgtest.Claim("unwatched")
	c.Take = record(t, s, parked(c))
	a, tx := begin(t, s, c)
	if _, err := tx.Conn().Exec(t.Context(), insertEffect, "unwatched"); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if escaped, err := a.(stores.Escapable).Escaped(t.Context()); err != nil || !escaped {
		t.Errorf("the claim of a committed takeover: %v, %v", escaped, err)
	}

	c = pgtest.Claim("ended by the handler")
	c.Take = record(t, s, parked(c))
	a, tx = begin(t, s, c)
	for _, text := range []string{"rollback", "begin"} {
		if _, err := tx.Conn().Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrTxEscaped) {
		t.Errorf("a takeover that the handler ended: %v", err)
	}
	if escaped, err := a.(stores.Escapable).Escaped(t.Context()); err != nil || escaped {
		t.Errorf("the claim of a takeover that was rolled back: %v, %v", escaped, err)
	}
}

func TestBoundOfATakeover(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := pgtest.Claim("bound")
	c.Bound = 7 * time.Second
	c.Take = record(t, s, parked(c))
	a, tx := begin(t, s, c)
	defer func() { _ = a.Rollback(t.Context()) }()
	var statement, idle string
	err := tx.QueryRow(t.Context(), "SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')").Scan(&statement, &idle)
	if err != nil || statement != "7s" || idle != "7s" {
		t.Errorf("statement_timeout %s, idle %s, %v", statement, idle, err)
	}
}

// Single statements run at the server's default level.
func TestRecordWhereTransactionsAreSerializable(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "default_transaction_isolation", "serializable"))
	c := pgtest.Claim("serializable")
	f := parked(c)
	f.Version = record(t, s, f)
	record(t, s, f)
	if _, err := s.Record(t.Context(), f); !errors.Is(err, stores.ErrChanged) {
		t.Error(err)
	}
	found := due(t, s, 10)
	if len(found) != 1 {
		t.Fatal(found)
	}
	c.Take = found[0].State.Version
	a, _ := begin(t, s, c)
	if err := a.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHugeErrorsAreCut(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const most = stores.MaxErrorBytes
	for name, test := range map[string]struct{ huge, kept string }{
		"text":    {"x" + strings.Repeat("ö", 5<<20), "x" + strings.Repeat("ö", most/2-1)},
		"NUL":     {strings.Repeat("\x00", 10<<20), strings.Repeat("\uFFFD", most/3)},
		"no text": {strings.Repeat("\xff", 10<<20), "\uFFFD"},
	} {
		f := parked(pgtest.Claim(name))
		f.Error = test.huge
		record(t, s, f)
		m, err := s.Find(t.Context(), f.Key)
		if err != nil {
			t.Fatal(err)
		}
		if m.Error != test.kept {
			t.Errorf("%s: %d bytes are kept, want %d", name, len(m.Error), len(test.kept))
		}
		if len(m.History) != 1 || len(m.History[0].Error) > stores.MaxHistoryErrorBytes {
			t.Errorf("%s: history %v", name, m.History)
		}
	}
}

func TestRevisionsNeverReachTheNumber(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	f := parked(pgtest.Claim("old"))
	record(t, s, f)
	if _, err := s.Pool().Exec(t.Context(), "UPDATE millpond_failure SET revision = 1048575"); err != nil {
		t.Fatal(err)
	}
	f.Version = look(t, s, pgtest.Claim("old")).Failure.Version
	if again := record(t, s, f); again == f.Version || again>>20 != f.Version>>20 {
		t.Errorf("version %x follows %x", again, f.Version)
	}
}
