package mysql_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
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
		"millpond_inbox":       "it does not see that a key is taken while another transaction inserts it",
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
		better := open(true)
		require.NoError(t, better.Validate(t.Context()))
		found, err := better.Examine(t.Context(), stores.Examination{Now: time.Now, Role: stores.RoleRuntime})
		require.NoError(t, err)
		require.Contains(t, fmt.Sprint(found), "millpond_server=any is set")
		require.Contains(t, fmt.Sprint(found), says)
	}
}

// A connection that is lost amid the proof takes its locks with it, and nothing is wrong with the
// server.
func TestALostConnectionProvesNothing(t *testing.T) {
	t.Parallel()
	config := mustParse(t, onMariaDB.shared(t).NewDatabase(t))
	admin := openDB(t, config, nil)
	open := func(config *driver.Config) *mysql.Store {
		s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	_, err := open(config).Migrate(t.Context())
	require.NoError(t, err)
	const holder = `SELECT coalesce(max(x.trx_mysql_thread_id), 0) FROM information_schema.innodb_trx x
JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id WHERE p.db = DATABASE() AND x.trx_rows_modified > 0`
	until := func(there bool) (id int64) {
		eventuallyListed(t, "the transaction of the first connection", func() bool {
			err := admin.QueryRowContext(t.Context(), holder).Scan(&id)
			return err == nil && (id != 0) == there
		})
		return id
	}
	var locks atomic.Int64
	cut := config.Clone()
	cut.Addr = between(t, config.Addr, func(text string) (string, error) {
		if strings.Contains(text, "millpond_outbox_lock WHERE slot") && locks.Add(1) == 2 {
			_, _ = admin.ExecContext(t.Context(), fmt.Sprintf("KILL %d", until(true)))
			until(false)
		}
		return text, nil
	})
	require.NoError(t, open(cut).Validate(t.Context()))
	require.Greater(t, locks.Load(), int64(1))
}

// A member of a Galera cluster draws numbers beside others.
func TestGaleraKeepsNoOrderOfOutputs(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMariaDB(t, testenv.WithMySQLSettings(map[string]string{"wsrep_on": "ON", "binlog_format": "ROW"}))
	var log bytes.Buffer
	s, err := mysql.OpenDB(t.Context(), mustParse(t, server.NewDatabase(t)), mysql.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	require.True(t, s.Capabilities().OutputsUnordered)
	require.Contains(t, log.String(), "the server is a member of a Galera cluster, which lacks locks between its members")
}

// A server that does not know what claims are made of is refused by what it answers.
func TestServersThatLackAClauseAreRefused(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		config := mustParse(t, p.shared(t).NewDatabase(t))
		open := func(config *driver.Config) *mysql.Store {
			s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		_, err := open(config).Migrate(t.Context())
		require.NoError(t, err)
		for _, clause := range []string{"SKIP LOCKED", "SHARE"} {
			lacking := config.Clone()
			lacking.Addr = between(t, config.Addr, func(text string) (string, error) {
				if strings.Contains(text, clause) {
					return "", errors.New("this version of the server doesn't yet support it")
				}
				return text, nil
			})
			err := open(lacking).Validate(t.Context())
			require.ErrorContains(t, err, "it lacks what claims are made of", clause)
			require.NotErrorIs(t, err, stores.ErrUnavailable)
		}
	})
}
