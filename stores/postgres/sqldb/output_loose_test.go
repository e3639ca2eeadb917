package sqldb_test

import (
	"errors"
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// What a handler says that has rolled back its transaction is written by nobody. A driver that
// does not show the end of a transaction needs the proof for that.
func TestOutputsOfATransactionThatIsGone(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		if e.name == callersPQ.unproven().name {
			return
		}
		s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
		a, tx := begin(t, s, pgtest.Claim("gone"))
		_, _ = tx.ExecContext(t.Context(), "ROLLBACK")
		if err := a.(stores.Emitter).Emit([]stores.Output{{ID: "o", Topic: "t"}}); err != nil {
			t.Fatal(err)
		}
		err := a.Commit(t.Context())
		var n int
		if err := s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_outbox").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(err, stores.ErrNotCommitted) || n > 0 {
			t.Errorf("%d outputs are written, and the commit says %v", n, err)
		}
	})
}
