package mysql_test

import (
	"errors"
	"testing"

	"github.com/millpond-go/millpond/stores"
)

// A handler that has ended its transaction and gone on without one has its outputs written by
// nobody, unless the attempt is committed.
func TestOutputsOfATransactionThatIsGone(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for name, own := range map[string]bool{"own": true, "a caller's": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := newCounted(t, p, own)
				if _, err := c.admin.ExecContext(t.Context(), "CREATE PROCEDURE loose() BEGIN ROLLBACK; SET autocommit = 1; END"); err != nil {
					t.Fatal(err)
				}
				for _, text := range []string{"SET autocommit = 1", "CALL loose()"} { // the first is refused on connections of the store's own
					a := begin(t, c, claimOf(text))
					if text != "CALL loose()" {
						_ = exec(t.Context(), a, "ROLLBACK")
					}
					_ = exec(t.Context(), a, text)
					if err := a.(stores.Emitter).Emit([]stores.Output{{ID: text, Topic: "t"}}); err != nil {
						t.Fatal(err)
					}
					err := a.Commit(t.Context())
					var n int
					if err := c.admin.QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_outbox WHERE message_id = ?", []byte(text)).Scan(&n); err != nil {
						t.Fatal(err)
					}
					if !errors.Is(err, stores.ErrNotCommitted) || n > 0 {
						t.Errorf("%s: %d outputs are written, and the commit says %v", text, n, err)
					}
				}
			})
		}
	})
}
