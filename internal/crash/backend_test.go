package crash

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// transaction is a native transaction as the service uses it. Statements have $1, $2.
type transaction interface {
	exec(ctx context.Context, query string, args ...any) error
	// ask runs a query for one text.
	ask(ctx context.Context, query string) (string, error)
	// finish calls the native Commit or Rollback.
	finish(ctx context.Context, commit bool) error
	// linger runs a statement that takes about 50 ms, longer if the machine is busy.
	linger(ctx context.Context) error
	// detour is honest, but after it the store cannot take the commit for granted.
	detour(ctx context.Context) error
	// fail runs a statement that fails, and rolls back if a statement can do that.
	fail(ctx context.Context) error
}

// What every system knows that handlers write. The last two fail, the second of them at commit.
const (
	insertEffect  = "INSERT INTO effect (consumer, id, part, run, payload) VALUES ($1, $2, $3, $4, $5)"
	sellItem      = "UPDATE stock SET sold = sold + 1 WHERE consumer = $1 AND item = $2"
	takeAgain     = "INSERT INTO taken VALUES (1)"
	breakDeferred = "INSERT INTO child VALUES (7)"
)

// effectFunc is a handler with its transaction.
type effectFunc func(ctx context.Context, tx transaction, msg *message.Message) error

// backend is the store of a worker and what comes with it.
type backend struct {
	store   stores.Store
	handler func(effectFunc) message.NoPublishHandlerFunc // by the store's helper
	find    func(context.Context) (transaction, bool)     // without it
	db      *sql.DB                                       // for the variants that do without the store; nil without SQL
	service *requests                                     // for those that change what is asked of a service; nil with SQL
	dialect dialect
	worker  int // whose it is
	close   func()
}

// clients is how a worker of a system opens its store. The server need not be up.
var clients = map[string]func(ctx context.Context, url string, worker int) (*backend, error){
	"postgres":     openPostgres,
	queuedName:     openQueued,
	"pgbouncer":    openPooled,
	"postgres+sql": openSQLDB,
	"lib/pq":       openPQ,
	"mariadb":      openMySQL,
	"mysql":        openMySQL,
	"tidb":         openTiDB,
	"sqlite":       openSQLite,
	"dynamodb":     openDynamoDB,
}

// untilUp tries to open a store that connects at once, until the database answers, or it
// has been down for longer than in any test.
func untilUp[S stores.Store](ctx context.Context, open func() (S, error)) (S, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		store, err := open()
		if err == nil || !errors.Is(err, stores.ErrUnavailable) || !pause.Sleep(ctx, openAgain) {
			return store, err
		}
	}
}

// sqlBackend is a backend whose handlers have a *sql.Tx; helper and find are the store's.
func sqlBackend(store stores.Store, db *sql.DB, d dialect,
	helper func(func(context.Context, *sql.Tx, *message.Message) error) message.NoPublishHandlerFunc,
	find func(context.Context) (*sql.Tx, bool),
) *backend {
	return &backend{
		store: store,
		handler: func(f effectFunc) message.NoPublishHandlerFunc {
			return helper(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error { return f(ctx, sqlTx{tx, d}, msg) })
		},
		find: func(ctx context.Context) (transaction, bool) {
			tx, ok := find(ctx)
			return sqlTx{tx, d}, ok
		},
		db: db, dialect: d,
		close: func() { _ = db.Close() },
	}
}

// sqlTx is a transaction of database/sql.
type sqlTx struct {
	*sql.Tx
	dialect dialect
}

func (t sqlTx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.ExecContext(ctx, t.dialect.placeholder(query), args...)
	return err
}

func (t sqlTx) ask(ctx context.Context, query string) (answer string, err error) {
	err = t.QueryRowContext(ctx, query).Scan(&answer)
	return answer, err
}

func (t sqlTx) finish(_ context.Context, commit bool) error {
	if commit {
		return t.Commit()
	}
	return t.Rollback()
}

func (t sqlTx) linger(ctx context.Context) error {
	var n int
	return t.QueryRowContext(ctx, t.dialect.linger).Scan(&n)
}

// detour rolls back to a savepoint, and does what the store cannot judge.
func (t sqlTx) detour(ctx context.Context) error {
	for _, query := range []string{
		t.dialect.detour,
		"SAVEPOINT detour",
		"INSERT INTO effect (consumer, id, part, run, payload) VALUES ('nobody', 'savepoint', 1, '', '')",
		"ROLLBACK TO SAVEPOINT detour",
		"RELEASE SAVEPOINT detour",
	} {
		if err := t.exec(ctx, query); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

func (t sqlTx) fail(ctx context.Context) error { return t.exec(ctx, t.dialect.fail) }
