package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// Rows that a handler has left open are its own fault, and no lost connection.
func TestRowsLeftOpenAreTold(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for _, ending := range []string{"nil", "an error", "a query's error"} {
			a := begin(t, c, claimOf(ending))
			msg := message.NewMessage("", nil)
			msg.SetContext(a.Context(t.Context()))
			err := mysql.Handler(func(ctx context.Context, tx *sql.Tx, _ *message.Message) error {
				rows, err := tx.QueryContext(ctx, "SELECT 1 UNION SELECT 2") //nolint:sqlclosecheck,rowserrcheck // that is the point
				require.NoError(t, err)
				require.True(t, rows.Next())
				switch ending {
				case "an error":
					return errors.New("no stock")
				case "a query's error":
					_, err := tx.ExecContext(ctx, effect)
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
			require.ErrorIs(t, err, stores.ErrTxBusy, ending)
			require.NoError(t, a.(stores.Interruptible).Interrupted(), "%s: %v", ending, handled)
		}
	})
}
