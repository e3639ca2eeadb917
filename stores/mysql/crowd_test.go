package mysql_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// A server that admits no more connections is not away: attempts go on with those that
// the pool has, and nobody is told that the store is unavailable.
func TestServerThatIsFullIsNotAway(t *testing.T) {
	t.Parallel()
	for _, p := range turnOf(t) {
		for _, own := range []bool{true, false} {
			t.Run(fmt.Sprint(p.Product, ", own ", own), func(t *testing.T) {
				t.Parallel()
				server := p.private(t, testenv.WithMySQLSettings(map[string]string{"max_connections": "14"}))
				config := mustParse(t, server.NewDatabase(t))
				settings := mysql.Config{Logger: slog.New(slog.DiscardHandler), MaxOpenConns: 40}
				s, err := mysql.OpenDB(t.Context(), config, settings)
				if !own {
					require.NoError(t, err)
					require.NoError(t, s.Close())
					s, err = mysql.New(openDB(t, config, nil), settings)
				}
				require.NoError(t, err)
				defer s.Close()
				_, err = s.Migrate(t.Context())
				require.NoError(t, err)
				require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
				_, err = s.DB().ExecContext(t.Context(), "CREATE TABLE effect (label VARCHAR(100))")
				require.NoError(t, err)

				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				var workers errgroup.Group
				for w := range 40 {
					workers.Go(func() error {
						for n := range 10 {
							a, v, err := s.Begin(ctx, claimOf(fmt.Sprint(w, " ", n)))
							if err != nil || v.Outcome != stores.Claimed {
								return fmt.Errorf("%s: %w", v.Outcome, err)
							}
							if err := exec(ctx, a, effect); err != nil {
								return err
							}
							if err := a.Commit(ctx); err != nil {
								return err
							}
						}
						return nil
					})
				}
				require.NoError(t, workers.Wait())
				var effects int
				require.NoError(t, s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM effect").Scan(&effects))
				assert.Equal(t, 400, effects)

				// Who has waited in vain is told so.
				var held []stores.Attempt
				for err == nil {
					short, cancel := context.WithTimeout(t.Context(), 3*time.Second) // in which a busy machine connects
					var a stores.Attempt
					if a, _, err = s.Begin(short, claimOf(fmt.Sprint("held ", len(held)))); err == nil {
						held = append(held, a)
					}
					cancel()
				}
				require.ErrorIs(t, err, stores.ErrBusy)
				require.ErrorIs(t, err, stores.ErrUnavailable)
				require.ErrorContains(t, err, "the server admits no more connections")
				require.ErrorContains(t, err, "max_connections")
				for _, a := range held {
					require.NoError(t, a.Rollback(t.Context()))
				}
				a, _, err := s.Begin(t.Context(), claimOf("after"))
				require.NoError(t, err)
				require.NoError(t, a.Commit(t.Context()))
			})
		}
	}
}
