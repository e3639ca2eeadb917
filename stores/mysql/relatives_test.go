package mysql_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// A server that calls itself OceanBase is refused before anything is asked of it, whatever the
// way in. What answers here is MariaDB under that name: the name is all that is looked at.
func TestServersThatOnlySpeakTheProtocolAreRefused(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMariaDB(t, testenv.WithMySQLSettings(map[string]string{"version": "5.7.25-OceanBase-v4.2.1.2"}))
	config := mustParse(t, server.NewDatabase(t))
	refused := func(err error) {
		t.Helper()
		require.EqualError(t, err, "mysql: the server is OceanBase, which lacks FOR SHARE; use MySQL 8.0 or later, or MariaDB 10.6 or later")
		require.NotErrorIs(t, err, stores.ErrUnavailable)
	}
	quiet := mysql.Config{Logger: slog.New(slog.DiscardHandler)}
	_, err := mysql.OpenDB(t.Context(), config, quiet)
	refused(err)
	s, err := mysql.New(openDB(t, config, nil), quiet)
	require.NoError(t, err)
	_, err = s.Migrate(t.Context())
	refused(err)
	refused(s.Register(t.Context(), stores.Registration{Consumer: billing}))
	refused(s.Validate(t.Context()))
	_, err = s.Applied(t.Context())
	refused(err)
	var tables int
	require.NoError(t, openDB(t, config, nil).QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()").Scan(&tables))
	assert.Zero(t, tables)
}

// A program whose handlers have all connections of its *sql.DB is told that, whatever it
// asks the store for, and not only that time has run out.
func TestExhaustedPoolIsNamed(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, p product) {
		c := newCounted(t, p, false)
		db := openDB(t, mustParse(t, c.proxy.URL()), func(config *driver.Config) { config.Logger = mustParse(t, c.proxy.URL()).Logger })
		db.SetMaxOpenConns(1)
		known, err := mysql.New(db, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, known.Register(t.Context(), stores.Registration{Consumer: billing}))
		fresh, err := mysql.New(db, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		held, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer held.Close()
		claim := claimOf("id")
		for what, ask := range map[string]func(context.Context) error{
			"Register": func(ctx context.Context) error { return fresh.Register(ctx, stores.Registration{Consumer: billing}) },
			"Validate": func(ctx context.Context) error { return fresh.Validate(ctx) },
			"Migrate":  func(ctx context.Context) error { _, err := fresh.Migrate(ctx); return err },
			"Begin":    func(ctx context.Context) error { _, _, err := known.Begin(ctx, claim); return err },
			"Look":     func(ctx context.Context) error { _, err := known.Look(ctx, claim.Key, claim.Fingerprint); return err },
			"Resolve":  func(ctx context.Context) error { _, err := known.Resolve(ctx, claim.Key); return err },
			"Record": func(ctx context.Context) error {
				_, err := known.Record(ctx, stores.Failure{Key: claim.Key, Status: stores.StatusFailed, Placement: stores.PlacementRedelivered, Attempts: 1})
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			err := ask(ctx)
			cancel()
			require.ErrorContains(t, err, "no connection of the pool became free in time, all 1 are in use", what)
			require.ErrorIs(t, err, context.DeadlineExceeded, what)
			require.ErrorIs(t, err, stores.ErrUnavailable, what)
		}
	})
}
