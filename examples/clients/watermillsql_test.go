package clients_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/examples/clients"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// subscribersOwn is the handler of a program that had no inbox: it writes in the
// transaction of watermill-sql's subscriber.
func subscribersOwn(msg *message.Message) error {
	tx, ok := wmsql.TxFromContext(msg.Context())
	if !ok {
		return errors.New("there is no transaction")
	}
	_, err := tx.ExecContext(msg.Context(), "INSERT INTO deposit VALUES ($1, '', 0)", msg.UUID)
	return err
}

// TestWatermillSQL kills the connection of watermill-sql's subscriber when the handler's
// work has ended, several times: its transaction is gone, and the messages come again. What
// the inbox says is completed is there, once.
func TestWatermillSQL(t *testing.T) {
	for name, test := range map[string]struct {
		handler   message.NoPublishHandlerFunc
		completed int64
	}{
		"as the page says": {clients.WatermillSQL(), deposits},
		"untouched":        {subscribersOwn, 0},
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t)
			publishSQL(t, db)
			ends, messages := &failures{}, &lines{}
			ended := consumeSQL(t, db, test.handler, func(c *middleware.InboxConfig) {
				c.Hooks = []middleware.Hook{ends}
				c.Logger = messages.logger()
			})
			testenv.Eventually(t, "every message is acked", func() bool { return ended() == deposits })

			expect(t, db, "SELECT count(*) FROM millpond_inbox WHERE completed_at IS NOT NULL", test.completed)
			expect(t, db, "SELECT count(*) FROM deposit", test.completed)
			expect(t, db, "SELECT count(DISTINCT id) FROM deposit", test.completed)
			if test.completed > 0 {
				expect(t, db, "SELECT sum(balance) FROM account", deposits*amount)
				expect(t, db, `SELECT count(*) FROM "watermill_receipts"`, deposits)
			} else if err := ends.last(); !errors.Is(err, middleware.ErrForeignTx) || !strings.Contains(err.Error(), "sqldb.Store") {
				t.Errorf("the handler has failed with %v", err)
			}
			if n := messages.count("watermill-sql.md"); n != 1 {
				t.Errorf("%d warnings of the subscriber", n)
			}
		})
	}
}

// consumeSQL runs a service on watermill-sql's subscriber, whose connection is killed after
// every fifth success. It returns how many messages were acked.
func consumeSQL(t *testing.T, db *sql.DB, handler message.NoPublishHandlerFunc, configure func(*middleware.InboxConfig)) (acked func() int) {
	t.Helper()
	store, err := sqldb.New(db, sqldb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := middleware.InboxConfig{Service: "bank", Retry: middleware.RetryPolicy{MaxAttempts: 1}}
	configure(&config)
	inbox, err := middleware.NewInbox(store, config)
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := wmsql.NewSubscriber(wmsql.BeginnerFromStdSQL(db), wmsql.SubscriberConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, ConsumerGroup: "bank", PollInterval: 10 * time.Millisecond, RetryInterval: 10 * time.Millisecond,
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	k := &killer{db: db, acked: make(map[string]bool), killed: make(map[string]bool)}
	router.AddMiddleware(k.around, inbox.Middleware)
	router.AddConsumerHandler("deposits", "deposits", subscriber, handler)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return k.count
}

// killer is a middleware around the inbox that ends the session of the subscriber.
type killer struct {
	db *sql.DB

	mu            sync.Mutex
	acked, killed map[string]bool
}

func (k *killer) around(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		outputs, err := next(msg)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err != nil {
			return outputs, err
		}
		if len(k.acked)%5 == 0 && !k.killed[msg.UUID] {
			k.killed[msg.UUID] = true
			return outputs, k.kill(msg) // and the subscriber does not hear of the success
		}
		k.acked[msg.UUID] = true
		return outputs, nil
	}
}

func (k *killer) kill(msg *message.Message) error {
	tx, ok := wmsql.TxFromContext(msg.Context()) // of the subscriber: this is not behind the inbox
	if !ok {
		return errors.New("the subscriber has no transaction")
	}
	rows, err := tx.QueryContext(msg.Context(), "SELECT pg_backend_pid()")
	if err != nil {
		return err
	}
	var pid int
	for rows.Next() {
		err = errors.Join(err, rows.Scan(&pid))
	}
	if err := errors.Join(err, rows.Close()); err != nil {
		return err
	}
	_, err = k.db.ExecContext(context.WithoutCancel(msg.Context()), "SELECT pg_terminate_backend($1)", pid)
	return errors.Join(errors.New("the connection is gone"), err)
}

func (k *killer) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.acked)
}

// publishSQL publishes the deposits by watermill-sql, and makes the table for receipts.
func publishSQL(t *testing.T, db *sql.DB) {
	t.Helper()
	publisher, err := wmsql.NewPublisher(wmsql.BeginnerFromStdSQL(db), wmsql.PublisherConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := wmsql.NewSubscriber(wmsql.BeginnerFromStdSQL(db), wmsql.SubscriberConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(subscriber.SubscribeInitialize("receipts"), subscriber.Close()); err != nil {
		t.Fatal(err)
	}
	for i := range deposits {
		payload, err := json.Marshal(clients.Deposit{ID: fmt.Sprint(i), Account: "one", Amount: amount})
		if err != nil {
			t.Fatal(err)
		}
		if err := publisher.Publish("deposits", message.NewMessage(fmt.Sprintf("deposit-%d", i), payload)); err != nil {
			t.Fatal(err)
		}
	}
}

// failures remembers the last one.
type failures struct {
	mu  sync.Mutex
	err error
}

func (f *failures) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.Class == stores.ClassConduct {
		f.err = d.Err
	}
}

func (f *failures) last() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.all.String(), s)
}
