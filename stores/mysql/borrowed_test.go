package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// state is what a connection of the caller's shows of an attempt that was on it.
func (p product) state(t *testing.T, db *sql.DB) string {
	t.Helper()
	timeouts := "@@SESSION.idle_transaction_timeout, @@SESSION.max_statement_time"
	isolation := "@@SESSION.tx_isolation"
	if !p.maria() {
		timeouts, isolation = "@@SESSION.wait_timeout, @@SESSION.max_execution_time", "@@SESSION.transaction_isolation"
	}
	var state string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT CONCAT_WS(' ', @@SESSION.autocommit, "+isolation+", "+timeouts+")").Scan(&state))
	if _, err := db.ExecContext(t.Context(), "SET TRANSACTION READ WRITE"); err != nil { // refused within a transaction
		state += " " + err.Error()
	}
	return state
}

// Whatever becomes of an attempt on the program's own *sql.DB, the program gets its
// connections back as they were, or new ones.
func TestCallersConnectionsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for _, procedures := range []bool{true, false} {
			c := newCounted(t, p, false)
			if !procedures {
				if p.maria() {
					continue
				}
				for _, name := range []string{"begin", "complete", "look"} {
					_, err := c.admin.ExecContext(t.Context(), "DROP PROCEDURE millpond_"+name)
					require.NoError(t, err)
				}
			}
			db := openDB(t, mustParse(t, c.proxy.URL()), func(config *driver.Config) {
				config.Params = map[string]string{"innodb_lock_wait_timeout": "1"}
			})
			db.SetMaxOpenConns(1)
			s, err := mysql.New(db, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
			want := p.state(t, db)
			_, err = db.ExecContext(t.Context(), "BEGIN")
			require.NoError(t, err)
			require.NotEqual(t, want, p.state(t, db), "a transaction must be seen")
			_, err = db.ExecContext(t.Context(), "ROLLBACK")
			require.NoError(t, err)

			other := c.another(t, nil)
			held := begin(t, other, claimOf("held"))
			require.NoError(t, begin(t, other, claimOf("done")).Commit(t.Context()))
			failed := claimOf("failed")
			version, err := other.Record(t.Context(), stores.Failure{
				Key: failed.Key, Fingerprint: failed.Fingerprint, Status: stores.StatusFailed, Placement: stores.PlacementRedelivered, Attempts: 1,
			})
			require.NoError(t, err)
			canceled, cancel := context.WithCancel(t.Context())
			cancel()
			handled := func(texts ...string) func(stores.Attempt, string) {
				return func(a stores.Attempt, _ string) {
					for _, text := range texts {
						_ = exec(t.Context(), a, text)
					}
				}
			}
			for _, test := range []struct {
				what   string
				claim  stores.Claim
				handle func(stores.Attempt, string)
			}{
				{"in flight", claimOf("held"), nil},
				{"duplicate", claimOf("done"), nil},
				{"final", failed, nil},
				{"not to be taken", stores.Claim{Key: failed.Key, Fingerprint: failed.Fingerprint, Bound: time.Minute, Take: version + 1}, nil},
				{"ordered", stores.Claim{Key: claimOf("ordered").Key, OrderKey: []byte("o"), Bound: time.Minute}, handled(effect)},
				{"without a bound", stores.Claim{Key: claimOf("unbound").Key}, handled(effect)},
				{"honest", claimOf("honest"), handled(effect)},
				{"commits", claimOf("commits"), handled(effect, "COMMIT", effect)},
				{"rolls back", claimOf("rolls back"), handled(effect, "ROLLBACK", effect)},
				{"begins", claimOf("begins"), handled(effect, "START TRANSACTION", effect)},
				{"DDL", claimOf("DDL"), handled("CREATE TABLE IF NOT EXISTS made (n INT)", effect)},
				{"next isolation", claimOf("isolation"), handled("COMMIT", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")},
				{"an error", claimOf("an error"), handled("INSERT INTO nowhere VALUES (1)")},
				{"a lock", claimOf("a lock"), handled("UPDATE millpond_inbox SET token = 1 WHERE message_id = 'held'")},
				{"kills itself", claimOf("kills itself"), handled("KILL CONNECTION_ID()")},
				{"open rows", claimOf("rows"), func(a stores.Attempt, _ string) {
					tx, _ := mysql.TxFromContext(a.Context(t.Context()))
					_, _ = tx.QueryContext(t.Context(), "SELECT 1 UNION SELECT 2") //nolint:sqlclosecheck,rowserrcheck // on purpose
				}},
				{"tx.Commit", claimOf("tx.Commit"), func(a stores.Attempt, _ string) {
					tx, _ := mysql.TxFromContext(a.Context(t.Context()))
					_ = tx.Commit()
				}},
				{"tx.Rollback", claimOf("tx.Rollback"), func(a stores.Attempt, _ string) {
					tx, _ := mysql.TxFromContext(a.Context(t.Context()))
					_ = tx.Rollback()
				}},
				{"reply lost", claimOf("reply lost"), func(stores.Attempt, string) { c.proxy.LoseCommitReply(1) }},
			} {
				for name, end := range map[string]func(stores.Attempt) error{
					"commit":            func(a stores.Attempt) error { return a.Commit(t.Context()) },
					"rollback":          func(a stores.Attempt) error { return a.Rollback(t.Context()) },
					"canceled commit":   func(a stores.Attempt) error { return a.Commit(canceled) },
					"canceled rollback": func(a stores.Attempt) error { return a.Rollback(canceled) },
				} {
					if test.what == "reply lost" && name != "commit" {
						continue
					}
					what := fmt.Sprintf("%s, %s, procedures %t", test.what, name, procedures)
					claim := test.claim
					if test.handle != nil {
						claim.Key.ID = append(claim.Key.ID, name...)
					}
					a, _, err := s.Begin(t.Context(), claim)
					require.NoError(t, err, what)
					if a != nil {
						test.handle(a, what)
						_ = end(a)
					}
					require.Equal(t, want, p.state(t, db), what)
				}
			}
			// Contexts end at any moment.
			for i := range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), mathrand.N(4*time.Millisecond))
				a, _, _ := s.Begin(ctx, claimOf(fmt.Sprint("canceled ", i%20)))
				if a != nil {
					_ = exec(ctx, a, effect)
					_ = a.Commit(ctx)
				}
				cancel()
				require.Equal(t, want, p.state(t, db))
			}
			require.NoError(t, held.Rollback(t.Context()))
			var left int
			require.NoError(t, c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_inbox WHERE status = 1").Scan(&left))
			assert.LessOrEqual(t, left, 8) // of handlers that have committed in the middle, and were given up
		}
	})
}
