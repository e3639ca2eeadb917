package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

func TestWhatFailedMessagesCost(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	n := 0
	next := func() stores.Claim {
		n++
		return pgtest.Claim(fmt.Sprint("message ", n))
	}
	var (
		again    stores.Failure
		ordered  = pgtest.Claim("ordered")
		taken    stores.Claim
		reserved []stores.Retry
	)
	ordered.OrderKey = []byte("order")
	for _, test := range []struct {
		name           string
		before, f      func()
		trips, commits int
	}{
		{"a first failure", nil, func() { record(t, s, parked(next())) }, 1, 1},
		{"a later failure", func() { again = parked(next()); again.Version = record(t, s, again) }, func() { record(t, s, again) }, 1, 1},
		{"Look at a failed message", nil, func() { look(t, s, stores.Claim{Key: again.Key}) }, 1, 0},
		{"Begin for a parked message", nil, func() { pgtest.Verdict(t, s, stores.Claim{Key: again.Key}) }, 2, 0},
		{"Due", func() { record(t, s, parked(next())) }, func() { reserved = due(t, s, 10) }, 1, 1},
		{"Release", nil, func() { _ = s.Release(t.Context(), reserved) }, 1, 1},
		{"Backlog", nil, func() { _, _ = s.Backlog(t.Context(), 10) }, 1, 0},
		{"a takeover with its handler", func() { taken = next(); taken.Take = record(t, s, parked(taken)) }, func() {
			a, tx := begin(t, s, taken)
			exec(t, tx, insertEffect, "taken")
			if err := a.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, 3, 1},
		{"a first delivery with an order key", func() { ordered.Key = next().Key }, func() {
			a, tx := begin(t, s, ordered)
			exec(t, tx, insertEffect, "ordered")
			if err := a.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, 3, 1},
	} {
		const enough = 3
		for i := range enough + 1 {
			if test.before != nil {
				test.before()
			}
			before := proxy.Stats()
			test.f()
			cost := proxy.Stats().Since(before)
			if i == enough && (cost.RoundTrips != test.trips || cost.Commits > test.commits) {
				t.Errorf("%s: %+v, want %d trips, %d commits", test.name, cost, test.trips, test.commits)
			}
		}
	}
}

// fill adds parked rows with an order key each, half of them due.
func fill(t *testing.T, s *postgres.Store, n int) {
	t.Helper()
	fillBetween(t, s, 1, n)
}

func fillBetween(t *testing.T, s *postgres.Store, first, last int) {
	t.Helper()
	fillDueIn(t, s, "CASE WHEN n % 2 = 0 THEN interval '0' ELSE interval '1 hour' END", first, last)
}

func fillDueIn(t *testing.T, s *postgres.Store, dueIn string, first, last int) {
	t.Helper()
	for _, text := range []string{
		`INSERT INTO millpond_inbox (consumer, message_id, status) SELECT id, int4send(n), 3 FROM millpond_consumer, generate_series($1::integer, $2::integer) n`,
		`INSERT INTO millpond_failure (consumer, message_id, status, placement, content, attempts, uncounted, due_at,
	class, cause, error, topic, coordinates, order_key)
SELECT id, int4send(n), 3, 1, 1, 1, 0, now() + ` + dueIn + `, '', '', '', '', '', int4send(n)
FROM millpond_consumer, generate_series($1::integer, $2::integer) n`,
	} {
		if _, err := s.Pool().Exec(t.Context(), text, first, last); err != nil {
			t.Fatal(err)
		}
	}
}

// Plans are made once and kept, whatever the tables become later: in none of these
// states may they read more than they need.
func TestPlansReadFewRowsOfLargeTables(t *testing.T) {
	t.Parallel()
	const rows = 100_000
	analyze := func(s *postgres.Store) { exec(t, s.Pool(), "ANALYZE") }
	for name, prepare := range rotation.Some(t, 1, map[string]func(s *postgres.Store){
		"never analyzed":           func(s *postgres.Store) { fill(t, s, rows) },
		"analyzed when full":       func(s *postgres.Store) { fill(t, s, rows); analyze(s) },
		"analyzed when it was new": func(s *postgres.Store) { analyze(s); fill(t, s, rows) },
	}) {
		s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "plan_cache_mode", "force_generic_plan", "pool_max_conns", "1"))
		prepare(s)
		consumer := consumerNumber(t, s)
		exec(t, s.Pool(), "SELECT set_config('millpond.turn', 'true', false)") // on the only connection
		for call, statement := range map[string]string{
			"due(" + consumer + ", 100, '1 minute', 1000000000)":  "due(bigint, bigint, interval, bigint) AS " + s.DueStatement(),
			"take(" + consumer + `, '\x00000001', 1, 0, 1, NULL)`: "take(bigint, bytea, bigint, integer, bigint, bytea) AS " + s.TakeOverStatement(),
		} {
			exec(t, s.Pool(), "PREPARE "+statement)
			plan := executed(t, s, call)
			readsFew(t, name, plan)
			if strings.HasPrefix(call, "due") && !strings.Contains(plan, "millpond_failure_due") {
				t.Errorf("%s: the partial index is not used:\n%s", name, plan)
			}
		}
	}
}

func TestDuePassesRowsThatWaitForOthers(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	head := parked(pgtest.Claim("head"))
	head.Placement, head.OrderKey, head.OrderWait = stores.PlacementRedelivered, []byte("order"), time.Hour // the broker has it
	record(t, s, head)
	const behind = 20
	for i := range behind {
		f := parked(pgtest.Claim(fmt.Sprint("behind ", i)))
		f.OrderKey, f.DueIn = head.OrderKey, -time.Hour
		record(t, s, f)
	}
	record(t, s, parked(pgtest.Claim("free")))
	found := due(t, s, 4)
	if len(found) != 1 || string(found[0].Key.ID) != "free" {
		t.Errorf("due: %v", found)
	}
	if again := due(t, s, 4); len(again) != 0 {
		t.Errorf("due again: %v", again)
	}
}

func TestListenIsWoken(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	woken, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func() { woken <- struct{}{} }) }()
	<-woken // it listens
	wait := func(what string) {
		t.Helper()
		select {
		case <-woken:
		case <-time.After(30 * time.Second):
			t.Errorf("%s has woken nobody", what)
		}
	}
	record(t, s, parked(pgtest.Claim("a")))
	wait("a failure that is due at once")
	if err := s.Release(t.Context(), due(t, s, 10)); err != nil {
		t.Fatal(err)
	}
	wait("Release")
	if done, err := s.Change(t.Context(), stores.Change{Verb: stores.VerbRetry, Limit: 10}); err != nil || done.Changed != 1 {
		t.Fatal(done, err)
	}
	wait("a retry by an operator")
	later := parked(pgtest.Claim("later"))
	later.DueIn = time.Hour
	record(t, s, later)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := len(woken); n != 0 {
		t.Errorf("a failure that is not due has woken %d times", n)
	}
}

func TestListenEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	woken, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- s.Listen(t.Context(), func() { woken <- struct{}{} }) }()
	<-woken
	exec(t, s.Pool(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()")
	if err := <-ended; !errors.Is(err, stores.ErrUnavailable) {
		t.Error(err)
	}
}

// Many wakes are one: commits that notify are serialized by the server.
func TestFewFailuresNotify(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan struct{}, 1000), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func() { woken <- struct{}{} }) }()
	<-woken
	start := time.Now()
	const failures = 200
	for i := range failures {
		record(t, s, parked(pgtest.Claim(fmt.Sprint(i))))
	}
	<-woken
	most := int(time.Since(start)/(100*time.Millisecond)) + 1
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := len(woken) + 1; n > most {
		t.Errorf("%d failures have woken %d times, at most %d are allowed", failures, n, most)
	}
}
