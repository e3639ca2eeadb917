//go:build unix

package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A writer in a process of its own is told by these what to do.
const (
	writerStore  = "MILLPOND_TEST_WRITER_STORE"
	writerName   = "MILLPOND_TEST_WRITER_NAME"
	writerKind   = "MILLPOND_TEST_WRITER_KIND"
	writerBroken = "MILLPOND_TEST_WRITER_BROKEN" // the file to which it publishes before it commits
	writerMarks  = "MILLPOND_TEST_WRITER_MARKS"  // the file where it notes how far it is
)

const (
	producing = "producer"
	handling  = "handler"
)

// said is what the transactions of writers have written: an output, its order key, and which one
// of the key it is, counted under a lock of the key's row. It has no unique key, so that an
// effect that happens twice shows.
var saidSchema = []string{
	"CREATE TABLE said (id VARCHAR(100) NOT NULL, order_key VARCHAR(20) NOT NULL, n INTEGER NOT NULL)",
	"CREATE TABLE spoken (order_key VARCHAR(20) NOT NULL PRIMARY KEY, n INTEGER NOT NULL)",
	"CREATE TABLE effect (id VARCHAR(100) NOT NULL)",
}

// speaker is a store with what writers do on it, whatever its driver.
type speaker struct {
	store  stores.Store
	begin  func(ctx context.Context) (publisher func(stores.PublisherConfig) message.Publisher, exec execer, commit, rollback func() error, err error)
	within func(ctx context.Context) execer // the attempt's transaction
	query  func(ctx context.Context, query string) ([][]string, error)
}

func openSpeaker(ctx context.Context, address string) (*speaker, error) {
	opened, err := stores.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	s := &speaker{store: opened}
	switch store := opened.(type) {
	case *postgres.Store:
		err = store.Validate(ctx)
		s.onPostgres(store)
	case *sqldb.Store:
		err = store.Validate(ctx)
		s.onSQL(store.DB(), func(tx *sql.Tx, c stores.PublisherConfig) message.Publisher { return sqldb.NewPublisher(tx, store, c) }, sqldb.TxFromContext)
	case *mysql.Store:
		err = store.Validate(ctx)
		s.onSQL(store.DB(), func(tx *sql.Tx, c stores.PublisherConfig) message.Publisher { return mysql.NewPublisher(tx, store, c) }, mysql.TxFromContext)
	case *sqlite.Store:
		err = store.Validate(ctx)
		s.onSQL(store.DB(), func(tx *sql.Tx, c stores.PublisherConfig) message.Publisher { return sqlite.NewPublisher(tx, store, c) }, sqlite.TxFromContext)
	default:
		err = fmt.Errorf("a %T speaks not", store)
	}
	return s, err
}

func (s *speaker) onPostgres(store *postgres.Store) {
	s.begin = func(ctx context.Context) (func(stores.PublisherConfig) message.Publisher, execer, func() error, func() error, error) {
		tx, err := store.Pool().Begin(ctx)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		return func(c stores.PublisherConfig) message.Publisher { return postgres.NewPublisher(tx, store, c) }, execOn(ctx, tx),
			func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }, nil
	}
	s.within = func(ctx context.Context) execer {
		tx, _ := postgres.TxFromContext(ctx)
		return execOn(ctx, tx)
	}
	s.query = func(ctx context.Context, query string) ([][]string, error) {
		rows, err := store.Pool().Query(ctx, query)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
			values, err := row.Values()
			var texts []string
			for _, v := range values {
				texts = append(texts, fmt.Sprint(v))
			}
			return texts, err
		})
	}
}

func execOn(ctx context.Context, tx pgx.Tx) execer {
	return func(query string, args ...any) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	}
}

func (s *speaker) onSQL(db *sql.DB, publisher func(*sql.Tx, stores.PublisherConfig) message.Publisher, within func(context.Context) (*sql.Tx, bool)) {
	exec := func(ctx context.Context, tx *sql.Tx) execer {
		return func(query string, args ...any) error {
			_, err := tx.ExecContext(ctx, query, args...)
			return err
		}
	}
	s.begin = func(ctx context.Context) (func(stores.PublisherConfig) message.Publisher, execer, func() error, func() error, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		return func(c stores.PublisherConfig) message.Publisher { return publisher(tx, c) }, exec(ctx, tx), tx.Commit, tx.Rollback, nil
	}
	s.within = func(ctx context.Context) execer {
		tx, _ := within(ctx)
		return exec(ctx, tx)
	}
	s.query = func(ctx context.Context, query string) (all [][]string, err error) {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			texts, at := make([]string, len(columns)), make([]any, len(columns))
			for i := range texts {
				at[i] = &texts[i]
			}
			if err := rows.Scan(at...); err != nil {
				return nil, err
			}
			all = append(all, texts)
		}
		return all, rows.Err()
	}
}

// say writes that a message of a key is said. Whoever else says something of the key waits.
func say(exec execer, id, key string) error {
	err := exec("UPDATE spoken SET n = n + 1 WHERE order_key = '" + key + "'")
	if err == nil {
		err = exec("INSERT INTO said (id, order_key, n) SELECT '" + id + "', order_key, n FROM spoken WHERE order_key = '" + key + "'")
	}
	return err
}

// writerProcess says things until its input or the process ends.
func writerProcess(address string) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := openSpeaker(ctx, address)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if os.Getenv(writerKind) == handling {
		err = s.handle(ctx, os.Getenv(writerName), os.Getenv(writerMarks))
	} else {
		s.produce(ctx, fmt.Sprintf("%s-%d", os.Getenv(writerName), time.Now().UnixNano()))
	}
	return errors.Join(err, s.store.Close())
}

// mayDie kills the process, now and then.
func mayDie() {
	if rand.N(100) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// produce is a program with a publisher in its own transactions. What an error of a commit means
// it does not know, and need not.
func (s *speaker) produce(ctx context.Context, name string) {
	early, _ := openFile(os.Getenv(writerBroken))
	for n := 0; ctx.Err() == nil; n++ {
		key, id := fmt.Sprint(rand.N(storyKeys)), fmt.Sprintf("%s-%d", name, n)
		_ = s.produceOne(ctx, id, key, early)
		<-time.After(time.Duration(rand.N(40)) * time.Millisecond)
	}
}

func (s *speaker) produceOne(ctx context.Context, id, key string, early *file) error {
	publisher, exec, commit, rollback, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rollback() }()
	if err := say(exec, id, key); err != nil {
		return err
	}
	if err := publisher(stores.PublisherConfig{OrderKey: byKey}).Publish("topic", newMessage(id, key)); err != nil {
		return err
	}
	if early.File != nil {
		_ = early.PublishEach(ctx, "", newMessage(id, key))
	}
	if rand.N(40) == 0 {
		<-time.After(400 * time.Millisecond) // longer than the floor lags
	}
	mayDie()
	if rand.N(8) == 0 {
		return nil
	}
	err = commit()
	mayDie()
	return err
}

// handle is a service whose handler says something. Messages are numbered; after a crash some
// that were acked come again, and now and then one comes twice.
func (s *speaker) handle(ctx context.Context, name, marks string) error {
	inbox, err := middleware.NewInbox(s.store, middleware.InboxConfig{
		Service: "speaker", Handler: "say", Logger: slog.New(slog.DiscardHandler), CacheSize: -1,
		Outputs: &middleware.Outputs{OrderKey: byKey}, Retry: middleware.RetryPolicy{MaxAttempts: 1_000_000},
	})
	if err != nil {
		return err
	}
	deliver := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		key, id := fmt.Sprint(rand.N(storyKeys)), msg.UUID+"-said"
		if err := say(s.within(msg.Context()), id, key); err != nil {
			return nil, err
		}
		said := newMessage(id, key)
		said.SetContext(msg.Context())
		if err := outbox.Publisher("").Publish("topic", said); err != nil {
			return nil, err
		}
		mayDie()
		return nil, nil
	})
	last, _ := os.ReadFile(marks)
	from, _ := strconv.Atoi(strings.TrimSpace(string(last)))
	for n := max(from-3, 0); ctx.Err() == nil; n++ {
		for range 1 + rand.N(2) {
			for ctx.Err() == nil {
				life, settled := context.WithCancel(context.WithoutCancel(ctx))
				_, err := deliver(message.NewMessageWithContext(life, fmt.Sprintf("%s-%d", name, n), []byte("say something")))
				settled()
				if err == nil {
					break
				}
				<-time.After(20 * time.Millisecond)
			}
			mayDie()
		}
		if ctx.Err() == nil {
			_ = os.WriteFile(marks, []byte(strconv.Itoa(n)), 0o600)
		}
		<-time.After(time.Duration(rand.N(40)) * time.Millisecond)
	}
	return nil
}
