package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// Rows that a handler has left open are its own fault, and no lost connection.
func TestRowsLeftOpenAreTold(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
		for _, text := range []string{"SELECT 1", "SELECT repeat('row', 100) FROM generate_series(1, 100000)"} {
			for _, ending := range []string{"nil", "an error", "a query's error"} {
				a, _ := begin(t, s, pgtest.Claim(text+ending))
				msg := message.NewMessage("", nil)
				msg.SetContext(a.Context(t.Context()))
				err := sqldb.Handler(func(ctx context.Context, tx *sql.Tx, _ *message.Message) error {
					rows, err := tx.QueryContext(ctx, text) //nolint:sqlclosecheck,rowserrcheck // that is the point
					if err != nil || !rows.Next() {
						t.Errorf("%s: %v", text, err)
					}
					switch ending {
					case "an error":
						return errors.New("no stock")
					case "a query's error":
						_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES ('a', 'done')")
						return err
					}
					return nil
				})(msg)
				handled := err
				if handled != nil {
					err = a.Rollback(t.Context())
				} else {
					err = a.Commit(t.Context())
				}
				if interrupted := a.(stores.Interruptible).Interrupted(); interrupted != nil { //nolint:forcetypeassert // a panic is a failure too
					t.Errorf("%q, %s: the handler returned %v, and %v", text, ending, handled, interrupted)
				}
				if unproven := e.callers && !e.config.ProveCommit && ending == "nil"; !unproven && !errors.Is(err, stores.ErrTxBusy) {
					t.Errorf("%q, %s: %v", text, ending, err)
				}
				if err != nil {
					comesAgain(t, s, pgtest.Claim(text+ending))
				}
			}
		}
	})
}

// comesAgain waits for the server, which may still be ending the transaction.
func comesAgain(t *testing.T, s *sqldb.Store, c stores.Claim) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		switch v := pgtest.Verdict(t, s, c); {
		case v.Outcome == stores.Claimed:
			return
		case v.Outcome != stores.InFlight || time.Now().After(deadline):
			t.Fatalf("%q: %v", c.Key.ID, v.Outcome)
		}
	}
}
