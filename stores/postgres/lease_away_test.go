package postgres_test

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A handler under a lease has acked its message, its service stops, and its server cannot be
// reached for longer than the lease lives. Another process, which can reach it, runs what is
// parked: nothing is lost, and no two run at a time.
func TestEarlyAckUnderALeaseWhileTheServerIsCutOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says  error
		stop  middleware.AfterCrash
		calls int
		left  stores.Outcome
	}{
		"it has succeeded": {nil, middleware.CrashStop, 1, stores.Duplicate},
		"run again":        {context.Canceled, middleware.CrashRetry, 2, stores.Duplicate},
		"for an operator":  {context.Canceled, middleware.CrashStop, 1, stores.Final},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.VolatilePostgres(t).NewDatabase(t)
			upstream, err := url.Parse(server)
			require.NoError(t, err)
			proxy, err := pgproxy.Start(server)
			require.NoError(t, err)
			t.Cleanup(func() { _ = proxy.Close() })
			elsewhere := openStore(t, server)
			inbox := func(s *postgres.Store) *middleware.Inbox {
				in, err := middleware.NewInbox(s, middleware.InboxConfig{
					Service: pgtest.Stock.Service, Handler: pgtest.Stock.Handler, HandlerTimeout: 5 * time.Second, ClaimTimeout: time.Second, RecordTimeout: time.Second,
					Hold:           middleware.HoldConfig{MaxPause: 100 * time.Millisecond},
					Retry:          middleware.RetryPolicy{Backoff: middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond}},
					LeaseByHandler: map[string]middleware.LeaseConfig{pgtest.Stock.Handler: {TTL: time.Second, AfterCrash: test.stop}},
				})
				require.NoError(t, err)
				return in
			}
			var (
				mu      sync.Mutex
				keys    []string
				running int
			)
			handle := func(during func(msg *message.Message) error) message.HandlerFunc {
				lease := postgres.Lease(func(ctx context.Context, msg *message.Message) (string, error) {
					key, _ := middleware.IdempotencyKey(ctx)
					mu.Lock()
					keys, running = append(keys, key), running+1
					if running > 1 {
						t.Error("two run at a time")
					}
					mu.Unlock()
					defer func() {
						mu.Lock()
						defer mu.Unlock()
						running--
					}()
					return key, during(msg)
				}, func(ctx context.Context, tx pgx.Tx, msg *message.Message, _ string) error {
					_, err := tx.Exec(ctx, insertEffect, msg.UUID)
					return err
				})
				return func(msg *message.Message) ([]*message.Message, error) { return nil, lease(msg) }
			}
			worker, err := middleware.NewRetryWorker(inbox(elsewhere), middleware.RetryWorkerConfig{
				PollInterval: 50 * time.Millisecond,
				Handlers:     map[string]message.HandlerFunc{pgtest.Stock.Handler: handle(func(*message.Message) error { return nil })},
			})
			require.NoError(t, err)
			working, end := context.WithCancel(t.Context())
			var other sync.WaitGroup
			other.Go(func() { _ = worker.Run(working) })
			defer other.Wait()
			defer end()

			ctx, stop := context.WithCancel(t.Context())
			msg := message.NewMessage("acked early", []byte("payload"))
			msg.SetContext(ctx)
			_, err = inbox(openStore(t, proxy.URL())).Middleware(handle(func(msg *message.Message) error {
				msg.Ack()
				stop()
				proxy.Redirect("127.0.0.1:1")
				time.AfterFunc(3*time.Second, func() { proxy.Redirect(upstream.Host) })
				return test.says
			}))(msg)
			require.NoError(t, err)
			key := stores.Key{Consumer: pgtest.Stock, ID: []byte("u:acked early")}
			require.Eventually(t, func() bool {
				v, err := elsewhere.Look(t.Context(), key, stores.Fingerprint{})
				return err == nil && v.Outcome == test.left
			}, 30*time.Second, 20*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, keys, test.calls)
			for _, key := range keys {
				require.Equal(t, keys[0], key)
				require.NotEmpty(t, key)
			}
			if test.left == stores.Duplicate {
				require.Equal(t, []string{"acked early"}, committedKeys(t, elsewhere))
			} else {
				require.Empty(t, committedKeys(t, elsewhere))
			}
		})
	}
}
