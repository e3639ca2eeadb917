package storetest

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// TestBrokenStoresFail breaks one rule of the contract at a time. The checks that
// are there for it must fail, and must pass on the store as it is.
func TestBrokenStoresFail(t *testing.T) {
	honest := newHarness(t, nil)
	named := make(map[string]check)
	for _, g := range honest.groups() {
		for _, c := range g.checks {
			named[g.name+"/"+c.name] = c
		}
	}
	needed := make(map[string]bool)
	all := slices.Concat(broken, brokenFailures, brokenReservations, brokenOutboxes, brokenLeases, brokenRetentions)
	var names []string
	for _, v := range all {
		names = append(names, v.name)
	}
	today := rotation.Turn(t, (len(names)+4)/5, names...)
	for _, v := range all {
		if !slices.Contains(today, v.name) {
			continue
		}
		for _, name := range v.fails {
			needed[name] = true
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, v.wrap)
			if v.harness != nil {
				v.harness(&h)
			}
			for _, name := range v.fails {
				c, ok := named[name]
				if !ok {
					t.Fatalf("there is no check %q", name)
				}
				// The check of this harness, which may differ.
				for _, g := range h.groups() {
					for _, own := range g.checks {
						if g.name+"/"+own.name == name {
							c = own
						}
					}
				}
				failures := record(t, cmp.Or(v.limit, time.Hour), func(tb testing.TB) { c.on(tb, &h) })
				if len(failures) == 0 {
					t.Errorf("%q passes", name)
					continue
				}
				t.Logf("%s: %.300s", name, failures[0])
			}
		})
	}
	t.Run("honest", func(t *testing.T) {
		t.Parallel()
		for _, name := range slices.Sorted(maps.Keys(needed)) {
			for _, failure := range record(t, time.Hour, func(tb testing.TB) { named[name].on(tb, &honest) }) {
				t.Errorf("%s: %s", name, failure)
			}
		}
	})
}

func TestForgottenActsFail(t *testing.T) {
	h := newHarness(t, nil)
	if problems := h.problems(); len(problems) > 0 {
		t.Fatalf("the harness of the test: %q", problems)
	}
	delete(h.Lacks, ActCommit)
	h.Lacks[ActRollback] = ""
	h.Acts = map[Act]Conduct{ActDeadlock: nil, "unheard of": nil}
	h.Write = nil
	want := []string{
		"Acts has an unknown act, unheard of",
		"Acts has no commit, and Lacks no reason for that",
		"Lacks gives no reason for rollback",
		"Write is missing",
		"both Acts and Lacks have deadlock",
	}
	if problems := h.problems(); !slices.Equal(problems, want) {
		t.Errorf("problems = %q, want %q", problems, want)
	}
}

// newHarness is a small harness on SQLite, whose stores are wrapped.
func newHarness(t *testing.T, wrap func(stores.Store, *sql.DB) stores.Store) Harness {
	t.Helper()
	lacks := make(map[Act]string)
	for act := range expectations {
		lacks[act] = "not needed here"
	}
	inTx := func(ctx context.Context, query string, args ...any) error {
		tx, ok := sqlite.TxFromContext(ctx)
		if !ok {
			return stores.ErrNoTx
		}
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}
	return Harness{
		Transact: transact,
		NewDatabase: func(tb testing.TB) *Database {
			tb.Helper()
			path := filepath.Join(tb.TempDir(), "selftest.db")
			admin, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { admin.Close() })
			open := func(tb testing.TB) stores.Store {
				tb.Helper()
				store, err := sqlite.New(tb.Context(), path, sqlite.Config{BusyTimeout: 200 * time.Millisecond, Synchronous: sqlite.Normal})
				if err != nil {
					tb.Fatal(err)
				}
				if wrap == nil {
					return store
				}
				return wrap(store, admin)
			}
			outage := func(tb testing.TB) func() {
				tb.Helper()
				conn, err := admin.Conn(tb.Context())
				if err == nil {
					_, err = conn.ExecContext(tb.Context(), "BEGIN IMMEDIATE")
				}
				if err != nil {
					tb.Fatal(err)
				}
				return func() {
					_, _ = conn.ExecContext(context.WithoutCancel(tb.Context()), "ROLLBACK")
					conn.Close()
				}
			}
			return &Database{Admin: admin, Open: open, Outage: outage}
		},
		Write: func(ctx context.Context, e Effect) error {
			return inTx(ctx, "INSERT INTO "+EffectTable+" (effect_key, label, run) VALUES (?, ?, ?)", e.Key, e.Label, e.Run)
		},
		Handler: func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
			return sqlite.Handler(func(ctx context.Context, _ *sql.Tx, msg *message.Message) error { return f(ctx, msg) })
		},
		Ways:  []Way{{Name: "Exec", Exec: func(ctx context.Context, text string) error { return inTx(ctx, text) }}},
		Lacks: lacks,
	}
}

func TestStatementsAreDistinct(t *testing.T) {
	seen := make(map[string]bool)
	for _, st := range statements {
		text := strings.Join(st.steps, " | ")
		if seen[text] {
			t.Errorf("%q is there twice", text)
		}
		seen[text] = true
	}
	ids := make(map[string]string)
	for _, id := range byteExact() {
		if other, ok := ids[id.id]; ok {
			t.Errorf("%q and %q are one id", id.name, other)
		}
		ids[id.id] = id.name
		if len(id.id) == 0 || len(id.id) > stores.MaxIDBytes {
			t.Errorf("%q has %d bytes", id.name, len(id.id))
		}
	}
	names := make(map[string]bool)
	for _, m := range hostileMessages() {
		key := fmt.Sprint(m.name)
		if names[key] {
			t.Errorf("%q is there twice", key)
		}
		names[key] = true
	}
}

// transact is a transaction of the program's own on the store, wrapped or not.
func transact(ctx context.Context, store stores.Store, f func(publisher func(stores.PublisherConfig) message.Publisher) error) error {
	if wrapped, ok := store.(interface{ Unwrap() stores.Store }); ok {
		store = wrapped.Unwrap()
	}
	own := store.(*sqlite.Store)
	tx, err := own.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	err = f(func(c stores.PublisherConfig) message.Publisher { return sqlite.NewPublisher(tx, own, c) })
	if err != nil {
		return err
	}
	return tx.Commit()
}
