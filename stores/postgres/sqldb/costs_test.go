package sqldb_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// What a message costs is part of the contract, and exact: these are no timings.

const insertEffect = "INSERT INTO effect (key, label) VALUES ($1, 'done')"

func TestWhatAFirstDeliveryCosts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		entry entry
		more  int // trips than the handler alone
	}{
		{connector, 0},
		{callersPG.unproven(), 1},
		{callersPQ.unproven(), 1},
		{callersPG, 2},
		{callersPQ, 2},
	} {
		t.Run(test.entry.name, func(t *testing.T) {
			t.Parallel()
			proxy, s := throughProxy(t, test.entry)
			alone := pgtest.WarmedUp(t, proxy, func() {
				inTransaction(t, s.DB(), func(tx *sql.Tx) error { return insert(t.Context(), tx) })
			})
			inbox := pgtest.WarmedUp(t, proxy, func() {
				a, tx := begin(t, s, pgtest.Claim(uuid.NewString()))
				if err := insert(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				if err := a.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
			t.Logf("%d trips alone, %d with the inbox", alone.RoundTrips, inbox.RoundTrips)
			if inbox.RoundTrips != alone.RoundTrips+test.more || alone.Commits != 1 || inbox.Commits != 1 || inbox.Rollbacks != 0 {
				t.Errorf("with the inbox: %+v, alone: %+v, want %d trips more", inbox, alone, test.more)
			}
		})
	}
}

func insert(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, insertEffect, uuid.NewString())
	return err
}

func inTransaction(t *testing.T, db *sql.DB, f func(*sql.Tx) error) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// throughProxy returns a store on one connection through a counting proxy.
func throughProxy(t *testing.T, e entry) (*pgproxy.Proxy, *sqldb.Store) {
	t.Helper()
	return throughProxyTo(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
}

func throughProxyTo(t *testing.T, e entry, address string) (*pgproxy.Proxy, *sqldb.Store) {
	t.Helper()
	proxy, err := pgproxy.Start(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	s := newStore(t, e, proxy.URL())
	s.DB().SetMaxOpenConns(1)
	return proxy, s
}

func TestWhatOtherCallsCost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		entry                        entry
		duplicate, look, parked, due int // trips
	}{
		{connector, 2, 1, 1, 1},
		{callersPG.unproven(), 4, 1, 1, 1},
	} {
		t.Run(test.entry.name, func(t *testing.T) {
			t.Parallel()
			proxy, s := throughProxy(t, test.entry)
			seen := pgtest.Claim("seen")
			a, _ := begin(t, s, seen)
			if err := a.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, call := range []struct {
				name  string
				trips int
				f     func()
			}{
				{"a duplicate", test.duplicate, func() { pgtest.Verdict(t, s, seen) }},
				{"Look", test.look, func() { _, _ = s.Look(t.Context(), seen.Key, seen.Fingerprint) }},
				{"Record", test.parked, func() { n++; record(t, s, fmt.Sprint("failed ", n)) }},
				{"Due", test.due, func() {
					if _, err := s.Due(t.Context(), stores.DueQuery{Consumer: pgtest.Stock, Limit: 1, Reserve: 1}); err != nil {
						t.Fatal(err)
					}
				}},
			} {
				cost := pgtest.WarmedUp(t, proxy, call.f)
				wrote := strings.HasPrefix(call.name, "Due")
				if cost.RoundTrips != call.trips || !wrote && cost.Commits != 0 {
					t.Errorf("%s: %+v, want %d trips", call.name, cost, call.trips)
				}
			}
		})
	}
}

func record(t *testing.T, s *sqldb.Store, id string) {
	t.Helper()
	_, err := s.Record(t.Context(), stores.Failure{
		Key: pgtest.Claim(id).Key, Status: stores.StatusPending, Placement: stores.PlacementParked, Attempts: 1,
		Class: "test", Error: "it failed", Content: &stores.Content{State: stores.ContentKept, UUID: id, Payload: []byte(id)},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatAnOutputCosts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		entry entry
		more  int // trips than without
	}{
		{connector, 0},
		{callersPG.unproven(), 1},
		{callersPQ.unproven(), 1},
		{callersPG, 1},
		{callersPQ, 1},
	} {
		t.Run(test.entry.name, func(t *testing.T) {
			t.Parallel()
			proxy, s := throughProxy(t, test.entry)
			cost := func(outputs ...stores.Output) pgproxy.Stats {
				return pgtest.WarmedUp(t, proxy, func() {
					a, tx := begin(t, s, pgtest.Claim(uuid.NewString()))
					if err := insert(t.Context(), tx); err != nil {
						t.Fatal(err)
					}
					if err := a.(stores.Emitter).Emit(outputs); err != nil {
						t.Fatal(err)
					}
					if err := a.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
				})
			}
			without, with := cost(), cost(stores.Output{ID: "id", Topic: "topic", Payload: []byte("payload")})
			if with.RoundTrips != without.RoundTrips+test.more || with.Commits != 1 || with.Rollbacks != 0 {
				t.Errorf("with an output: %+v, without: %+v, want %d trips more", with, without, test.more)
			}
		})
	}
}
