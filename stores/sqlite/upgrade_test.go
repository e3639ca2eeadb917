package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/upgradetest"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// Programs of the version before go on while its tables are migrated, and afterwards.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	open := func() *sqlite.Store {
		s, err := sqlite.New(t.Context(), path, sqlite.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	old := open().DB()
	fixture, err := os.ReadFile("testdata/schema_0003.sql")
	require.NoError(t, err)
	_, err = old.ExecContext(t.Context(), string(fixture))
	require.NoError(t, err)
	const now = "CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)"
	upgradetest.Run(t, upgradetest.Old{Store: open(), Deliver: func(id string) error {
		tx, err := old.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		for _, text := range []string{
			"INSERT INTO millpond_inbox (consumer, message_id, fingerprint, status, traceparent, completed_at) VALUES (2970855629233269707, CAST('" + id + "' AS BLOB), NULL, 2, NULL, " + now + ")",
			fmt.Sprintf("INSERT INTO millpond_failure (consumer, message_id, status, placement, content, attempts, uncounted, class, cause, error, topic, coordinates) VALUES (2970855629233269707, CAST('%s failed' AS BLOB), 4, 1, 0, 1, 0, 'transient', 'none', 'none', 'orders', '')", id),
			fmt.Sprintf("INSERT INTO millpond_outbox (created_at, bytes, bucket, destination, topic, type, codec, message_id) VALUES (%s, 1, 1, '', 'orders', '', '', CAST('%s' AS BLOB))", now, id),
			"INSERT INTO millpond_inbox (consumer, message_id, status) VALUES (2970855629233269707, CAST('" + id + " failed' AS BLOB), 4)",
		} {
			if _, err := tx.ExecContext(t.Context(), text); err != nil {
				return err
			}
		}
		return tx.Commit()
	}})
}
