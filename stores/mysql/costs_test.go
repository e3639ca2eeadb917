package mysql_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"log"
	"log/slog"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/myproxy"
	testmysql "github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// What a message costs is part of the contract, and exact: these are no timings.

var billing = stores.Consumer{Service: "billing", Handler: "charge"}

// counted is a store behind a proxy that counts.
type counted struct {
	*mysql.Store
	proxy *myproxy.Proxy
	admin *sql.DB // not through the proxy
	alone *sql.DB // one connection through the proxy, as the handler would have without an inbox
}

func newCounted(t *testing.T, p product, own bool) counted {
	t.Helper()
	return newCountedAt(t, p.shared(t).NewDatabase(t), own)
}

func newCountedAt(t *testing.T, address string, own bool) counted {
	t.Helper()
	proxy, err := myproxy.Start(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	config, direct := mustParse(t, proxy.URL()), mustParse(t, address)
	c := counted{proxy: proxy, admin: openDB(t, direct, nil), alone: openDB(t, config, nil)}
	c.alone.SetMaxOpenConns(1)
	settings := mysql.Config{Logger: slog.New(slog.DiscardHandler), MaxOpenConns: 1}
	if own {
		c.Store, err = mysql.OpenDB(t.Context(), config, settings)
	} else {
		db := openDB(t, config, nil)
		db.SetMaxOpenConns(1)
		c.Store, err = mysql.New(db, settings)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Register(t.Context(), stores.Registration{Consumer: billing}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.ExecContext(t.Context(), "CREATE TABLE effect (label VARCHAR(100))"); err != nil {
		t.Fatal(err)
	}
	return c
}

// again is the same with another store, as after a restart of the program.
func (c counted) again(t *testing.T, own bool) counted {
	t.Helper()
	config := mustParse(t, c.proxy.URL())
	var err error
	if own {
		c.Store, err = mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler), MaxOpenConns: 1})
	} else {
		db := openDB(t, config, nil)
		db.SetMaxOpenConns(1)
		c.Store, err = mysql.New(db, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		t.Fatal(err)
	}
	store := c.Store
	t.Cleanup(func() { _ = store.Close() })
	if err := c.Register(t.Context(), stores.Registration{Consumer: billing}); err != nil {
		t.Fatal(err)
	}
	return c
}

func mustParse(t *testing.T, address string) *driver.Config {
	t.Helper()
	config, err := testmysql.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = log.New(io.Discard, "", 0)
	return config
}

const effect = "INSERT INTO effect VALUES ('done')"

func claimOf(id string) stores.Claim {
	return stores.Claim{
		Key: stores.Key{Consumer: billing, ID: []byte(id)}, Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte(id)), Bound: 40e9,
	}
}

// withoutInbox is the handler in BEGIN and COMMIT.
func (c counted) withoutInbox(t *testing.T) {
	t.Helper()
	tx, err := c.alone.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(t.Context(), effect)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// begin wins a claim.
func begin(t *testing.T, s stores.Inbox, c stores.Claim) stores.Attempt {
	t.Helper()
	a, v, err := s.Begin(t.Context(), c)
	if err != nil || v.Outcome != stores.Claimed {
		t.Fatalf("Begin = %s, %v", v.Outcome, err)
	}
	return a
}

// beginOnceFree waits for a server that has not rolled back yet what a killed connection held.
func beginOnceFree(t *testing.T, s stores.Inbox, c stores.Claim) (a stores.Attempt) {
	t.Helper()
	require.Eventually(t, func() bool {
		begun, v, err := s.Begin(t.Context(), c)
		a = begun
		return err != nil || v.Outcome != stores.InFlight
	}, 30*time.Second, time.Millisecond)
	require.NotNil(t, a, "the claim failed, or is a duplicate")
	return a
}

// exec sends a statement of the handler's.
func exec(ctx context.Context, a stores.Attempt, text string) error {
	tx, _ := mysql.TxFromContext(a.Context(ctx))
	_, err := tx.ExecContext(ctx, text)
	return err
}

func (c counted) withInbox(t *testing.T) {
	t.Helper()
	a := begin(t, c, claimOf(rand.Text()))
	if err := exec(t.Context(), a, effect); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cost is what f costs when connections are open and know their settings.
func (c counted) cost(f func()) myproxy.Stats {
	for range 3 {
		f()
	}
	before := c.proxy.Stats()
	f()
	return c.proxy.Stats().Since(before)
}

// byTurns runs a test on the product whose turn it is.
func byTurns(t *testing.T, test func(t *testing.T, p product)) {
	t.Helper()
	for _, p := range turnOf(t) {
		t.Run(string(p.Product), func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

func TestFirstSightCostsTheTripsAndCommitsOfTheHandlerAlone(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		alone, inbox := c.cost(func() { c.withoutInbox(t) }), c.cost(func() { c.withInbox(t) })
		if alone.RoundTrips != 3 || alone.Commits != 1 {
			t.Fatalf("the handler alone: %+v", alone)
		}
		if inbox.RoundTrips != alone.RoundTrips || inbox.Commits != alone.Commits || inbox.Rollbacks != 0 {
			t.Errorf("with the inbox: %+v, alone: %+v", inbox, alone)
		}
	})
}

func TestRolledBackAttemptCostsTheTripsOfTheHandlerAlone(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		cost := c.cost(func() {
			a := begin(t, c, claimOf("rolled back"))
			if err := exec(t.Context(), a, effect); err != nil {
				t.Fatal(err)
			}
			if err := a.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if cost.RoundTrips != 3 || cost.Commits != 0 || cost.Rollbacks != 1 {
			t.Errorf("%+v", cost)
		}
	})
}

func TestFirstSightOnTheCallersConnectionsCostsTwoTripsMore(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, false)
		alone, inbox := c.cost(func() { c.withoutInbox(t) }), c.cost(func() { c.withInbox(t) })
		if inbox.RoundTrips != alone.RoundTrips+2 || inbox.Rollbacks != 0 {
			t.Errorf("with the inbox: %+v, alone: %+v", inbox, alone)
		}
	})
}

// written is what the tables say about messages.
func (c counted) written(t *testing.T) string {
	t.Helper()
	var inbox, failures string
	err := c.admin.QueryRowContext(t.Context(), "SELECT (SELECT group_concat(hex(message_id), status, token) FROM millpond_inbox), (SELECT count(*) FROM millpond_failure)").Scan(&inbox, &failures)
	if err != nil {
		t.Fatal(err)
	}
	return inbox + " " + failures
}

func TestDuplicateTakesTwoTripsAndWritesNothing(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) { newCounted(t, p, true).duplicates(t, 2, 1) })
}

func TestDuplicateOnTheCallersConnectionsTakesTwiceAsMany(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) { newCounted(t, p, false).duplicates(t, 4, 2) })
}

// duplicates checks how many round trips a claim and a look of a completed message take.
func (c counted) duplicates(t *testing.T, claimed, looked int) {
	t.Helper()
	claim := claimOf("seen")
	if err := begin(t, c, claim).Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := c.written(t)
	for name, test := range map[string]struct {
		trips int
		ask   func() (stores.Verdict, error)
	}{
		"Begin": {claimed, func() (stores.Verdict, error) { _, v, err := c.Begin(t.Context(), claim); return v, err }},
		"Look":  {looked, func() (stores.Verdict, error) { return c.Look(t.Context(), claim.Key, claim.Fingerprint) }},
	} {
		cost := c.cost(func() {
			if v, err := test.ask(); err != nil || v.Outcome != stores.Duplicate {
				t.Fatal(v.Outcome, err)
			}
		})
		if cost.RoundTrips != test.trips {
			t.Errorf("%s: %+v, want %d round trips", name, cost, test.trips)
		}
	}
	if after := c.written(t); after != before {
		t.Errorf("a duplicate has changed %s to %s", before, after)
	}
}

func TestInFlightTakesTwoTrips(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		holder, err := mysql.OpenDB(t.Context(), mustParse(t, c.proxy.URL()), mysql.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = holder.Close() })
		if err := holder.Register(t.Context(), stores.Registration{Consumer: billing}); err != nil {
			t.Fatal(err)
		}
		a := begin(t, holder, claimOf("held"))
		cost := c.cost(func() {
			if _, v, err := c.Begin(t.Context(), claimOf("held")); err != nil || v.Outcome != stores.InFlight {
				t.Fatal(v.Outcome, err)
			}
		})
		if cost.RoundTrips != 2 {
			t.Errorf("%+v", cost)
		}
		if err := a.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// Without the procedures a message on MySQL costs more, and is as safe.
func TestWithoutProceduresFirstSightCostsMore(t *testing.T) {
	t.Parallel()
	for own, more := range map[bool]int{true: 1, false: 9} {
		t.Run(fmt.Sprint("own ", own), func(t *testing.T) {
			t.Parallel()
			c := newCounted(t, onMySQL, own)
			for _, name := range []string{"begin", "complete", "look"} {
				if _, err := c.admin.ExecContext(t.Context(), "DROP PROCEDURE millpond_"+name); err != nil {
					t.Fatal(err)
				}
			}
			other := c.again(t, own)
			alone, inbox := other.cost(func() { other.withoutInbox(t) }), other.cost(func() { other.withInbox(t) })
			if inbox.RoundTrips != alone.RoundTrips+more || inbox.Rollbacks != 0 {
				t.Errorf("with the inbox: %+v, alone: %+v", inbox, alone)
			}
			claim := claimOf("seen")
			if err := begin(t, other, claim).Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, v, err := other.Begin(t.Context(), claim); err != nil || v.Outcome != stores.Duplicate {
				t.Errorf("Begin of a duplicate = %s, %v", v.Outcome, err)
			}
		})
	}
}
