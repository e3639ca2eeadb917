package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	testmysql "github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// execer is a transaction, whatever its driver.
type execer func(query string, args ...any) error

// rig is a store with what a producer does on it.
type rig struct {
	tb       testing.TB
	address  string // of the store, for other processes
	outbox   stores.Outbox
	transact func(f func(publisher func(stores.PublisherConfig) message.Publisher, exec execer) error) error
	count    func(query string) int

	unordered bool          // there are no order keys
	lapse     time.Duration // the time between the end of a lease and its takeover
}

var systems = map[string]func(testing.TB) *rig{"sqlite": onSQLite, "postgres": onPostgres, "mariadb": onMariaDB}

// everywhere runs a test on each database.
func everywhere(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for name, open := range systems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func onSQLite(tb testing.TB) *rig {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "outbox.db")
	s, err := sqlite.New(tb.Context(), path, sqlite.Config{AutoMigrate: true, Synchronous: sqlite.Normal, BusyTimeout: time.Minute})
	check(tb, err)
	check(tb, s.Validate(tb.Context()))
	tb.Cleanup(func() { _ = s.Close() })
	return onSQL(tb, "sqlite://"+path+"?synchronous=normal&busy_timeout=1m", s, s.DB(), func(tx *sql.Tx, c stores.PublisherConfig) message.Publisher { return sqlite.NewPublisher(tx, s, c) })
}

func onMariaDB(tb testing.TB) *rig {
	tb.Helper()
	return onMySQLAt(tb, testenv.MariaDB(tb).NewDatabase(tb))
}

func onMySQLAt(tb testing.TB, address string) *rig {
	tb.Helper()
	config, err := testmysql.ParseURL(address)
	check(tb, err)
	connector, err := driver.NewConnector(config)
	check(tb, err)
	db := sql.OpenDB(connector)
	s, err := mysql.New(db, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	check(tb, err)
	_, err = s.Migrate(tb.Context())
	check(tb, err)
	check(tb, s.Validate(tb.Context()))
	tb.Cleanup(func() { _, _ = s.Close(), db.Close() })
	return onSQL(tb, address, s, db, func(tx *sql.Tx, c stores.PublisherConfig) message.Publisher { return mysql.NewPublisher(tx, s, c) })
}

func onSQL(tb testing.TB, address string, s stores.Outbox, db *sql.DB, publisher func(*sql.Tx, stores.PublisherConfig) message.Publisher) *rig {
	tb.Helper()
	return &rig{tb: tb, address: address, outbox: s, transact: func(f func(func(stores.PublisherConfig) message.Publisher, execer) error) error {
		tx, err := db.BeginTx(tb.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		err = f(func(c stores.PublisherConfig) message.Publisher { return publisher(tx, c) }, func(query string, args ...any) error {
			_, err := tx.ExecContext(tb.Context(), query, args...)
			return err
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}, count: func(query string) (n int) {
		check(tb, db.QueryRowContext(context.WithoutCancel(tb.Context()), query).Scan(&n))
		return n
	}}
}

func onPostgres(tb testing.TB) *rig {
	tb.Helper()
	return onPostgresAt(tb, testenv.VolatilePostgres(tb).NewDatabase(tb))
}

func onPostgresAt(tb testing.TB, address string) *rig {
	tb.Helper()
	s, err := postgres.Open(tb.Context(), pgtest.WithParameters(tb, address, "pool_max_conns", "16"))
	check(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	_, err = s.Migrate(tb.Context())
	check(tb, err)
	check(tb, s.Validate(tb.Context()))
	return &rig{tb: tb, address: address, outbox: s, transact: func(f func(func(stores.PublisherConfig) message.Publisher, execer) error) error {
		return pgx.BeginFunc(tb.Context(), s.Pool(), func(tx pgx.Tx) error {
			return f(func(c stores.PublisherConfig) message.Publisher { return postgres.NewPublisher(tx, s, c) }, func(query string, args ...any) error {
				_, err := tx.Exec(tb.Context(), query, args...)
				return err
			})
		})
	}, count: func(query string) (n int) {
		check(tb, s.Pool().QueryRow(context.WithoutCancel(tb.Context()), query).Scan(&n))
		return n
	}}
}

func byKey(o stores.Output) []byte {
	if key, ok := o.Metadata["key"]; ok {
		return []byte(key)
	}
	return nil
}

func newMessage(id, key string) *message.Message {
	msg := message.NewMessage(id, []byte("content of "+id))
	if key != "" {
		msg.Metadata.Set("key", key)
	}
	return msg
}

// say commits messages of one order key to a destination.
func (r *rig) say(destination, key string, ids ...string) {
	r.tb.Helper()
	check(r.tb, r.transact(func(publisher func(stores.PublisherConfig) message.Publisher, _ execer) error {
		var messages []*message.Message
		for _, id := range ids {
			messages = append(messages, newMessage(id, key))
		}
		return publisher(stores.PublisherConfig{Destination: destination, OrderKey: byKey}).Publish("topic", messages...)
	}))
}

func (r *rig) waiting() int { return r.count("SELECT count(*) FROM millpond_outbox") }

// broker records what it takes, and answers as it is told.
type broker struct {
	answer func(msg *message.Message) error // nil: it takes all

	mu    sync.Mutex
	taken []*message.Message
	asked int
}

func (b *broker) one(msg *message.Message) error {
	b.mu.Lock()
	b.asked++
	b.mu.Unlock()
	if b.answer != nil {
		if err := b.answer(msg); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = append(b.taken, msg)
	return nil
}

func (b *broker) Publish(_ string, messages ...*message.Message) error {
	if len(messages) != 1 {
		return errors.New("several messages and one answer")
	}
	return b.one(messages[0])
}

func (b *broker) Close() error { return nil }

func (b *broker) messages() []*message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.taken)
}

func (b *broker) times() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// first are the ids that were taken, without repetitions.
func (b *broker) first() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := make(map[string]bool)
	for _, msg := range b.taken {
		if !seen[msg.UUID] {
			seen[msg.UUID] = true
			ids = append(ids, msg.UUID)
		}
	}
	return ids
}

func (b *broker) all() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range b.taken {
		ids = append(ids, msg.UUID)
	}
	return ids
}

// each has answers for each message.
type each struct{ *broker }

func (b each) PublishEach(_ context.Context, _ string, messages ...*message.Message) (errs []error) {
	keys := make(map[string]bool)
	for _, msg := range messages {
		if key := msg.Metadata.Get("key"); key != "" {
			if keys[key] {
				errs = append(errs, fmt.Errorf("two of the key %q in one wave", key))
				continue
			}
			keys[key] = true
		}
		errs = append(errs, b.one(msg))
	}
	return errs
}

// quick is a configuration with short times.
func quick(publishers map[string]message.Publisher) outbox.Config {
	return outbox.Config{
		Publishers: publishers, LeaseTTL: 2 * time.Second, PublishTimeout: time.Second, PollInterval: 20 * time.Millisecond,
		Backoff: 50 * time.Millisecond, DrainTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
}

// start runs a relay until stop is called.
func start(tb testing.TB, store stores.Outbox, c outbox.Config) (relay *outbox.Relay, stop func()) {
	tb.Helper()
	relay, err := outbox.New(store, c)
	check(tb, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := relay.Run(ctx); err != nil {
			tb.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	tb.Cleanup(stop)
	return relay, stop
}

func numbered(prefix string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("%s%05d", prefix, i))
	}
	return ids
}

func same(tb testing.TB, what string, got, want []string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf("%s: %d %.200q, want %d %.200q", what, len(got), fmt.Sprint(got), len(want), fmt.Sprint(want))
	}
}
