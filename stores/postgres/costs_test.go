package postgres_test

import (
	"crypto/rand"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// What a message costs is part of the contract, and exact: these are no timings.

const insertEffect = "INSERT INTO effect (key, label) VALUES ($1, 'done')"

// throughProxy returns a store on one connection through a counting proxy.
func throughProxy(t *testing.T, url string) (*postgres.Store, *pgproxy.Proxy) {
	t.Helper()
	proxy, err := pgproxy.Start(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return openStore(t, pgtest.WithParameters(t, proxy.URL(), "pool_max_conns", "1")), proxy
}

func withoutInbox(t *testing.T, s *postgres.Store) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), s.Pool(), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), insertEffect, uuid.NewString())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func withInbox(t *testing.T, s *postgres.Store) {
	t.Helper()
	id := uuid.NewString()
	a, tx := begin(t, s, pgtest.Claim(id))
	if _, err := tx.Exec(t.Context(), insertEffect, id); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestFirstSightCostsTheTripsAndCommitsOfTheHandlerAlone(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	alone := pgtest.WarmedUp(t, proxy, func() { withoutInbox(t, s) })
	inbox := pgtest.WarmedUp(t, proxy, func() { withInbox(t, s) })
	if alone.RoundTrips != 3 || alone.Commits != 1 {
		t.Fatalf("the handler alone: %+v", alone)
	}
	if inbox.RoundTrips != alone.RoundTrips || inbox.Commits != alone.Commits || inbox.Rollbacks != 0 {
		t.Errorf("with the inbox: %+v, alone: %+v", inbox, alone)
	}
}

// A handler whose conduct could not be watched pays no trip for the proof either.
func TestProofOfAnUnwatchedTransactionSharesTheTripOfCommit(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	cost := pgtest.WarmedUp(t, proxy, func() {
		id := uuid.NewString()
		a, tx := begin(t, s, pgtest.Claim(id))
		var batch pgx.Batch
		batch.Queue(insertEffect, id)
		if err := tx.SendBatch(t.Context(), &batch).Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if cost.RoundTrips != 3 || cost.Commits != 1 {
		t.Errorf("%+v", cost)
	}
}

func TestDuplicateCostsNoCommit(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	c := pgtest.Claim("seen")
	a, _ := begin(t, s, c)
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		trips int
		ask   func() stores.Verdict
	}{
		"Begin": {2, func() stores.Verdict { return pgtest.Verdict(t, s, c) }},
		"Look":  {1, func() stores.Verdict { return look(t, s, c) }},
	} {
		cost := pgtest.WarmedUp(t, proxy, func() {
			if v := test.ask(); v.Outcome != stores.Duplicate {
				t.Fatal(v.Outcome)
			}
		})
		if cost.RoundTrips != test.trips || cost.Commits != 0 {
			t.Errorf("%s: %+v", name, cost)
		}
	}
}

// walAndSequences returns the log position and the sum of all sequence values. The
// log is flushed first: unflushed bytes of others would be counted otherwise.
func walAndSequences(t *testing.T, pool *pgxpool.Pool) (wal, sequences int64) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint,
(SELECT coalesce(sum(last_value), 0)::bigint FROM pg_sequences)`).Scan(&wal, &sequences)
	if err != nil {
		t.Fatal(err)
	}
	return wal, sequences
}

// quietServer returns a server on which nothing but the test writes. Full page images
// are off because they depend on when the last checkpoint was.
func quietServer(t *testing.T) string {
	t.Helper()
	return testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{
		"autovacuum": "off", "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0", "full_page_writes": "off",
	})).NewDatabase(t)
}

func TestWriteAheadLogOfAMessage(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, quietServer(t), "pool_max_conns", "1"))
	const messages = 500
	measure := func(f func()) int64 {
		f()
		before, _ := walAndSequences(t, s.Pool())
		for range messages {
			f()
		}
		after, _ := walAndSequences(t, s.Pool())
		return (after - before) / messages
	}
	alone := measure(func() { withoutInbox(t, s) })
	inbox := measure(func() { withInbox(t, s) })
	t.Logf("WAL a message: %d B alone, %d B with the inbox (+%d B)", alone, inbox, inbox-alone)
	if inbox-alone > 400 {
		t.Errorf("the inbox adds %d B, at most 400 are allowed", inbox-alone)
	}
}

func TestDuplicateWritesNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, quietServer(t), "pool_max_conns", "1"))
	c := pgtest.Claim("seen")
	a, _ := begin(t, s, c)
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, s.Pool(), "VACUUM") // or reading the catalog prunes what the migrations have left there
	pgtest.Verdict(t, s, c)     // sets the hint bits of the row, once
	wal, sequences := walAndSequences(t, s.Pool())
	for range 160 {
		for _, v := range []stores.Verdict{pgtest.Verdict(t, s, c), look(t, s, c)} {
			if v.Outcome != stores.Duplicate {
				t.Fatal(v.Outcome)
			}
		}
	}
	walAfter, sequencesAfter := walAndSequences(t, s.Pool())
	if wal != walAfter || sequences != sequencesAfter {
		t.Errorf("320 duplicates wrote %d B of log and drew %d sequence values", walAfter-wal, sequencesAfter-sequences)
	}
}

func TestSizeOfACompletedRow(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const rows = 2000
	for _, test := range []struct {
		name  string
		limit float64
		trace bool
		id    func() string
	}{
		{"a UUID", 210, false, uuid.NewString},
		{"a UUID and a trace", 240, true, uuid.NewString},
		{"36 characters, no UUID", 250, false, func() string { return rand.Text() + rand.Text()[:10] }},
	} {
		if _, err := s.Pool().Exec(t.Context(), "TRUNCATE millpond_inbox"); err != nil {
			t.Fatal(err)
		}
		chain := keys.First(keys.UUID())
		for range rows {
			text := test.id()
			if len(text) != 36 {
				t.Fatalf("%q has %d characters", text, len(text))
			}
			id, _, err := chain.ID(message.NewMessage(text, nil), 255)
			if err != nil {
				t.Fatal(err)
			}
			c := pgtest.Claim(string(id))
			if test.trace {
				_, _ = rand.Read(c.TraceParent[:])
			}
			a, _ := begin(t, s, c)
			if err := a.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var table, index float64
		err := s.Pool().QueryRow(t.Context(), "SELECT pg_relation_size('millpond_inbox'), pg_indexes_size('millpond_inbox')").Scan(&table, &index)
		if err != nil {
			t.Fatal(err)
		}
		size := (table + index) / rows
		t.Logf("%s: %.0f B a row (%.0f in the table, %.0f in the index)", test.name, size, table/rows, index/rows)
		if size > test.limit {
			t.Errorf("%s: %.0f B a row, at most %.0f are allowed", test.name, size, test.limit)
		}
	}
}
