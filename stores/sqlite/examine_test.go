package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

func TestExamination(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	find := func(c sqlite.Config, now func() time.Time) (whats string, serious int) {
		t.Helper()
		s, err := sqlite.New(t.Context(), path, c)
		require.NoError(t, err)
		defer s.Close()
		findings, err := s.Examine(t.Context(), stores.Examination{Now: now, Role: stores.RoleRuntime, Overdue: time.Hour})
		require.NoError(t, err)
		for _, f := range findings {
			whats += f.What + "\n"
			if f.Severity != stores.SeverityNote {
				serious++
			}
		}
		return whats, serious
	}
	clean := sqlite.Config{}
	whats, _ := find(clean, time.Now)
	require.Contains(t, whats, "this program needs")
	s, err := sqlite.New(t.Context(), path, sqlite.Config{AutoMigrate: true})
	require.NoError(t, err)
	defer s.Close()
	whats, serious := find(clean, time.Now)
	require.Zero(t, serious, whats)

	whats, _ = find(sqlite.Config{Synchronous: sqlite.Normal}, time.Now)
	require.Contains(t, whats, "synchronous is NORMAL")
	whats, _ = find(clean, func() time.Time { return time.Now().Add(90 * time.Second) })
	require.Contains(t, whats, "differ by 1m")
	require.NoError(t, os.Chmod(path, 0o644))
	whats, _ = find(clean, time.Now)
	require.Contains(t, whats, "the file has the mode 0644")

	for says, plant := range map[string][2]string{
		"lack column millpond_failure.class":    {"ALTER TABLE millpond_failure RENAME COLUMN class TO was", "ALTER TABLE millpond_failure RENAME COLUMN was TO class"},
		"lack index millpond_failure_due":       {"DROP INDEX millpond_failure_due", "CREATE INDEX millpond_failure_due ON millpond_failure (consumer, due_at) WHERE status = 3 AND placement = 1"},
		"also have column millpond_inbox.mine":  {"ALTER TABLE millpond_inbox ADD COLUMN mine TEXT", "ALTER TABLE millpond_inbox DROP COLUMN mine"},
		"1 outputs wait to be published":        {"INSERT INTO millpond_outbox (created_at, bytes, bucket, destination, topic, type, codec, message_id) VALUES (1, 1, 1, '', 't', '', '', x'00')", "DELETE FROM millpond_outbox"},
		"1 message is held in quarantine":       {"INSERT INTO millpond_quarantine (consumer, reason, detail, identity_hash, fingerprint, topic, coordinates, first_at, last_at) VALUES (1, '', '', x'00', x'01', '', '', 1, 1)", "DELETE FROM millpond_quarantine"},
		"4500000000000, more than half of what": {"INSERT INTO millpond_failure (number, consumer, message_id, status, placement, content, attempts, uncounted, class, cause, error, topic, coordinates) VALUES (4500000000000, 1, x'00', 4, 1, 0, 1, 0, '', '', '', '', '')", "DELETE FROM millpond_failure"},
	} {
		_, err := s.DB().ExecContext(t.Context(), plant[0])
		require.NoError(t, err, plant[0])
		whats, _ := find(clean, time.Now)
		require.Contains(t, whats, says)
		_, err = s.DB().ExecContext(t.Context(), plant[1])
		require.NoError(t, err, plant[1])
	}
	whats, serious = find(clean, time.Now)
	require.Zero(t, serious, whats)
}
