package storetest_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
	"github.com/millpond-go/millpond/stores/storetest"
)

// An adapter's conformance test. Every act that a driver's calls allow belongs to Acts.
func Example() {
	inTx := func(ctx context.Context, text string, args ...any) error {
		tx, ok := sqlite.TxFromContext(ctx)
		if !ok {
			return stores.ErrNoTx
		}
		_, err := tx.ExecContext(ctx, text, args...)
		return err
	}
	testConformance := func(t *testing.T) {
		storetest.Run(t, storetest.Harness{
			NewDatabase: func(tb testing.TB) *storetest.Database {
				tb.Helper()
				path := filepath.Join(tb.TempDir(), "conformance.db")
				admin, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
				if err != nil {
					tb.Fatal(err)
				}
				tb.Cleanup(func() { _ = admin.Close() })
				return &storetest.Database{
					Admin: admin,
					Open: func(tb testing.TB) stores.Store {
						tb.Helper()
						store, err := sqlite.New(tb.Context(), path, sqlite.Config{BusyTimeout: 300 * time.Millisecond})
						if err != nil {
							tb.Fatal(err)
						}
						return store
					},
				}
			},
			Write: func(ctx context.Context, e storetest.Effect) error {
				return inTx(ctx, "INSERT INTO "+storetest.EffectTable+" (effect_key, label, run) VALUES (?, ?, ?)", e.Key, e.Label, e.Run)
			},
			Handler: func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
				return sqlite.Handler(func(ctx context.Context, _ *sql.Tx, msg *message.Message) error { return f(ctx, msg) })
			},
			Ways: []storetest.Way{
				{Name: "Exec", Exec: func(ctx context.Context, text string) error { return inTx(ctx, text) }},
			},
			Acts: map[storetest.Act]storetest.Conduct{
				storetest.ActCommit: func(ctx context.Context, _ *storetest.Database) error {
					tx, ok := sqlite.TxFromContext(ctx)
					if !ok {
						return storetest.ErrNotPerformed
					}
					return tx.Commit()
				},
			},
			Lacks: map[storetest.Act]string{
				storetest.ActDeadlock: "there is one writer, which has the lock from the beginning of its transaction",
			},
		})
	}
	_ = testConformance
}
