package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// with opens a store whose connections have parameters of the driver's.
func (c counted) with(t *testing.T, own bool, parameters string, settings mysql.Config) (*mysql.Store, error) {
	t.Helper()
	config, err := driver.ParseDSN(mustParse(t, c.proxy.URL()).FormatDSN() + "?" + parameters)
	require.NoError(t, err)
	settings.Logger = slog.New(slog.DiscardHandler)
	var s *mysql.Store
	if own {
		s, err = mysql.OpenDB(t.Context(), config, settings)
	} else {
		s, err = mysql.New(openDB(t, config, nil), settings)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, s.Register(t.Context(), stores.Registration{Consumer: billing})
}

// Connections with autocommit off would keep locked what the store looks at, and lose
// what it writes, outside of transactions.
func TestConnectionsHaveAutocommitOn(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		s, err := c.with(t, true, "autocommit=0", mysql.Config{})
		require.NoError(t, err)
		claim := claimOf("own")
		require.NoError(t, begin(t, s, claim).Commit(t.Context()))
		committed, err := s.Resolve(t.Context(), claim.Key)
		require.NoError(t, err)
		assert.True(t, committed)
		_, err = c.admin.ExecContext(within(t, 20*time.Second), "DELETE FROM millpond_inbox")
		require.NoError(t, err)

		_, err = c.with(t, false, "autocommit=0", mysql.Config{})
		require.ErrorContains(t, err, "autocommit=1")
	})
}

// In some character sets the backslash that the driver puts before a quote becomes part
// of a letter, and what follows the quote becomes SQL.
func TestCharacterSets(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for _, charset := range []string{"gbk", "sjis", "big5", "cp932"} {
			for _, own := range []bool{true, false} {
				_, err := c.with(t, own, "charset="+charset, mysql.Config{})
				require.ErrorContains(t, err, "character set "+charset)
			}
		}
		for _, own := range []bool{true, false} { // what is bound to statements would be converted
			_, err := c.with(t, own, "character_set_connection=latin1", mysql.Config{})
			require.ErrorContains(t, err, "character_set_connection latin1")
		}
		for _, charset := range []string{"latin1", "gb2312", "eucjpms", "utf8mb4"} {
			for _, mode := range []string{"", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES"} {
				s, err := c.with(t, true, fmt.Sprintf("charset=%s&sql_mode=%%27%s%%27", charset, mode), mysql.Config{})
				require.NoError(t, err, charset)
				for _, evil := range []string{"\xbf'", "\x95'", "\xbf\\", "\x81'", "\x8f\xa1'", `\'`, `\`, `'`, "\x00'"} {
					f := stores.Failure{
						Key: claimOf(charset + mode + evil).Key, Status: stores.StatusFailed, Placement: stores.PlacementRedelivered, Attempts: 1,
						Error: evil, Class: stores.Class(evil), Topic: evil,
					}
					_, err = s.Record(t.Context(), f)
					require.NoError(t, err, "%s %q", charset, evil)
					v, err := s.Look(t.Context(), f.Key, stores.Fingerprint{})
					require.NoError(t, err, "%s %q", charset, evil)
					assert.Equal(t, stores.Final, v.Outcome, "%s %q", charset, evil)
				}
			}
		}
	})
}

// At REPEATABLE READ, where locks also cover what is not there, claims of other keys do
// not wait for a handler, and one of the same key is told.
func TestClaimsDoNotWaitAtRepeatableRead(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		for _, own := range []bool{true, false} {
			c := newCounted(t, p, own)
			s, err := c.with(t, own, "", mysql.Config{Isolation: sql.LevelRepeatableRead})
			require.NoError(t, err)
			ids := []string{"m", "a", "n", "z"}
			var held []stores.Attempt
			for _, id := range ids {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				a, v, err := s.Begin(ctx, claimOf(id))
				cancel()
				require.NoError(t, err, "%s, own %t", id, own)
				require.Equal(t, stores.Claimed, v.Outcome, "%s, own %t", id, own)
				held = append(held, a)
			}
			for _, id := range ids {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				_, v, err := s.Begin(ctx, claimOf(id))
				cancel()
				require.NoError(t, err, "%s, own %t", id, own)
				assert.Equal(t, stores.InFlight, v.Outcome, "%s, own %t", id, own)
			}
			for _, a := range held {
				require.NoError(t, a.Commit(t.Context()))
			}
		}
	})
}

// A COMMIT that begins the next transaction keeps the store from setting an isolation
// level, and text that is null where it is empty fits none of its columns.
func TestSettingsThatKeepTheStoreFromWritingAreNamed(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, true)
		for _, own := range []bool{true, false} {
			_, err := c.with(t, own, "completion_type=1", mysql.Config{})
			require.ErrorContains(t, err, "completion_type=0")
			if p.maria() {
				_, err = c.with(t, own, "sql_mode=%27EMPTY_STRING_IS_NULL%27", mysql.Config{})
				require.ErrorContains(t, err, "EMPTY_STRING_IS_NULL")
			}
		}
	})
}

// A failover may lead to a server with other settings. Who is told of it registers again.
func TestSettingsAreReadAgain(t *testing.T) {
	t.Parallel()
	server := onMariaDB.private(t)
	config := mustParse(t, server.NewDatabase(t))
	s := openStore(t, config)
	f := stores.Failure{
		Key: stores.Key{Consumer: billing, ID: []byte("large")}, Status: stores.StatusPending, Placement: stores.PlacementParked,
		Class: stores.ClassTransient, Content: &stores.Content{State: stores.ContentKept, Payload: make([]byte, 2<<20)},
	}
	_, err := s.Record(t.Context(), f)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), "SET GLOBAL max_allowed_packet = 1048576")
	require.NoError(t, err)
	s.DB().SetMaxIdleConns(-1) // as the connections of the server before are gone
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	f.Key.ID = []byte("too large")
	_, err = s.Record(t.Context(), f)
	require.ErrorIs(t, err, stores.ErrTooLarge)
}
