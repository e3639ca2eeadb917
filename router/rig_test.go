package router_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/router"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// rig is a broker and a database that outlive the services of a test.
type rig struct {
	t      *testing.T
	store  string // its URL
	broker *lasting
	log    *lockedBuffer
}

// onEveryStore runs a test on each database.
func onEveryStore(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("sqlite", func(t *testing.T) { test(t, newRig(t)) })
	t.Run("postgres", func(t *testing.T) {
		r := newRig(t)
		r.store = withParameter(t, testenv.Postgres(t).NewDatabase(t), "pool_max_conns", "40")
		test(t, r)
	})
}

func withParameter(t *testing.T, raw, name, value string) string {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

func newRig(t *testing.T) *rig {
	broker, err := memory.New(memory.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	return &rig{t: t, store: "sqlite://" + filepath.Join(t.TempDir(), "rig.db"), broker: &lasting{Broker: broker}, log: &lockedBuffer{}}
}

// lasting is a broker that services do not close.
type lasting struct {
	brokers.Broker

	can         *brokers.Capabilities // in place of its own
	settleLimit time.Duration
}

func (b *lasting) Close() error { return nil }

func (b *lasting) Capabilities() brokers.Capabilities {
	can := b.Broker.Capabilities()
	if b.can != nil {
		can = *b.can
	}
	can.SettleLimit = b.settleLimit
	return can
}

// config is what a test begins with.
func (r *rig) config() router.Config {
	c := router.Config{
		Service: "shop",
		Broker:  router.BrokerConfig{URL: router.NewURL("lasting://")},
		Store:   router.StoreConfig{URL: router.NewURL(r.store), Migrate: true},
		Inbox:   middleware.InboxConfig{Retry: middleware.RetryPolicy{Backoff: middleware.BackoffConfig{Min: 10 * time.Millisecond, Max: 20 * time.Millisecond}}},
	}
	c.RetryWorker.PollInterval = 20 * time.Millisecond
	c.Program.Brokers = new(brokers.Mux)
	c.Program.Brokers.Handle("lasting", func(context.Context, *url.URL) (brokers.Broker, error) { return r.broker, nil })
	c.Program.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c.Program.NoSignals = true
	return c
}

func (r *rig) service(c router.Config) *router.Service {
	svc, err := router.New(r.t.Context(), c)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, svc.Close()) })
	r.exec(svc, `CREATE TABLE IF NOT EXISTS effect (what TEXT NOT NULL)`)
	return svc
}

// run runs a service until stop is called, which returns what Run returned.
func (r *rig) run(svc *router.Service) (stop func() error) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	select {
	case <-svc.Watermill().Running():
	case err := <-ended:
		require.NoError(r.t, err)
		require.Fail(r.t, "the service has ended")
	case <-time.After(time.Minute):
		require.Fail(r.t, "the service does not start", r.log.String())
	}
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

func (r *rig) publish(topic, id string) {
	publisher, err := r.broker.Publisher(brokers.PublisherConfig{})
	require.NoError(r.t, err)
	require.NoError(r.t, publisher.Publish(topic, message.NewMessage(id, []byte(id))))
}

// write is a handler's effect, in the message's transaction, on either store.
func write(msg *message.Message, what string) error {
	const insert = `INSERT INTO effect (what) VALUES ('`
	if tx, ok := postgres.TxFromContext(msg.Context()); ok {
		_, err := tx.Exec(msg.Context(), insert+what+`')`)
		return err
	}
	if tx, ok := sqlite.TxFromContext(msg.Context()); ok {
		_, err := tx.ExecContext(msg.Context(), insert+what+`')`)
		return err
	}
	return errors.New("there is no transaction")
}

func (r *rig) exec(svc *router.Service, statement string) {
	var err error
	switch store := svc.Store().(type) {
	case *postgres.Store:
		_, err = store.Pool().Exec(r.t.Context(), statement)
	case *sqlite.Store:
		var db *sql.DB
		db, err = sql.Open("sqlite", r.dsn())
		require.NoError(r.t, err)
		_, err = db.ExecContext(r.t.Context(), statement)
		err = errors.Join(err, db.Close())
	}
	require.NoError(r.t, err)
}

func (r *rig) dsn() string {
	return "file:" + r.store[len("sqlite://"):] + "?_pragma=busy_timeout(10000)"
}

// effects are what handlers have committed, in order.
func (r *rig) effects() (all []string) {
	const query = `SELECT what FROM effect ORDER BY what`
	if r.store[:6] != "sqlite" {
		conn, err := pgx.Connect(r.t.Context(), withoutPool(r.t, r.store))
		require.NoError(r.t, err)
		defer conn.Close(context.Background())
		rows, err := conn.Query(r.t.Context(), query)
		require.NoError(r.t, err)
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(r.t, err)
		return all
	}
	db, err := sql.Open("sqlite", r.dsn())
	require.NoError(r.t, err)
	defer db.Close()
	rows, err := db.QueryContext(r.t.Context(), query)
	require.NoError(r.t, err)
	defer rows.Close()
	for rows.Next() {
		var what string
		require.NoError(r.t, rows.Scan(&what))
		all = append(all, what)
	}
	require.NoError(r.t, rows.Err())
	return all
}

func withoutPool(t *testing.T, raw string) string {
	u, err := url.Parse(raw)
	require.NoError(t, err)
	query := u.Query()
	query.Del("pool_max_conns")
	u.RawQuery = query.Encode()
	return u.String()
}

// reach waits until the effects are these.
func (r *rig) reach(want ...string) {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(c *assert.CollectT) { assert.Equal(c, want, r.effects()) }, 30*time.Second, 10*time.Millisecond)
}

// await waits until something happens.
func await(t *testing.T, what <-chan struct{}) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(30 * time.Second):
		require.Fail(t, "it does not happen")
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
