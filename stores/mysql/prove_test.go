package mysql_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// A server of a good name whose locks do not lock, as tables of another engine do not, is
// found out before a message is handled. MySQL refuses the statements for such tables, so what
// does not lock is MariaDB.
func TestServersMustProveThatTheyLock(t *testing.T) {
	t.Parallel()
	for table, says := range map[string]string{
		"millpond_outbox_lock": "it gives one lock to two connections",
		"millpond_inbox":       "it does not see that a key is taken which another transaction is inserting",
	} {
		config := mustParse(t, onMariaDB.shared(t).NewDatabase(t))
		open := func(anyServer bool) *mysql.Store {
			s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler), AnyServer: anyServer})
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		s := open(false)
		_, err := s.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, open(false).Validate(t.Context()))
		_, err = s.DB().ExecContext(t.Context(), "ALTER TABLE "+table+" ENGINE = MyISAM")
		require.NoError(t, err)
		for range 2 {
			for _, err := range []error{s.Validate(t.Context()), s.Register(t.Context(), stores.Registration{Consumer: billing})} {
				require.ErrorContains(t, err, says)
				require.NotErrorIs(t, err, stores.ErrUnavailable)
			}
		}
		var left int
		require.NoError(t, s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM millpond_inbox").Scan(&left))
		require.Zero(t, left)
		require.NoError(t, open(true).Validate(t.Context()))
	}
}

// A member of a Galera cluster draws numbers beside others.
func TestGaleraKeepsNoOrderOfOutputs(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMariaDB(t, testenv.WithMySQLSettings(map[string]string{"wsrep_on": "ON", "binlog_format": "ROW"}))
	s, err := mysql.OpenDB(t.Context(), mustParse(t, server.NewDatabase(t)), mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	require.True(t, s.Capabilities().OutputsUnordered)
}
