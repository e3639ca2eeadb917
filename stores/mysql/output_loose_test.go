package mysql_test

import (
	"bytes"
	"errors"
	"strconv"
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

// A handler may let its session convert what is bound to statements. Its outputs are written as
// they are, large ones as well.
func TestOutputsOfASessionThatConverts(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for name, own := range map[string]bool{"own": true, "a caller's": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := newCounted(t, p, own)
				for i, size := range []int{10, 300 << 10} {
					id := strconv.Itoa(i) + " é"
					a := begin(t, c, claimOf(id))
					if err := exec(t.Context(), a, "SET character_set_client = latin1, character_set_connection = utf8mb4"); err != nil {
						t.Fatal(err)
					}
					said := bytes.Repeat([]byte("\xbf\xe9'"), size)
					if err := a.(stores.Emitter).Emit([]stores.Output{{ID: id, Topic: "té", Payload: said}}); err != nil {
						t.Fatal(err)
					}
					if err := a.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
					var payload []byte
					var topic string
					if err := c.admin.QueryRowContext(t.Context(), "SELECT payload, topic FROM millpond_outbox WHERE message_id = ?", []byte(id)).Scan(&payload, &topic); err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(payload, said) || topic != "té" {
						t.Errorf("%d bytes are written as %d to %q: %.20q", len(said), len(payload), topic, payload)
					}
				}
			})
		}
	})
}
