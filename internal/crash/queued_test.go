package crash

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// queuedName is PostgreSQL with handlers that hand their statements over.
const queuedName = "postgres queued"

// newFragileQueued is a server of its own behind a proxy, both of which may be hurt. Handlers do
// not use up their queue in a goroutine that they leave behind: it would grow for ever.
func newFragileQueued(t *testing.T) *system {
	t.Helper()
	s := onPrivatePostgres(t, queuedName).behindProxy(t)
	s.dialect.without = append([]conduct{leaks}, s.dialect.without...)
	return s
}

func openQueued(ctx context.Context, rawURL string, worker int) (*backend, error) {
	b, err := openPostgres(ctx, rawURL, worker)
	if err != nil {
		return nil, err
	}
	b.handler = func(f effectFunc) message.NoPublishHandlerFunc {
		return postgres.Queued(func(ctx context.Context, q *postgres.Queue, msg *message.Message) error {
			tx, ok := postgres.TxFromContext(ctx)
			if !ok {
				return stores.ErrNoTx
			}
			return f(ctx, queuedTx{pgxTx{tx}, q}, msg)
		})
	}
	return b, nil
}

// queuedTx sends what is to be read, and what takes a while, and queues the rest.
type queuedTx struct {
	pgxTx

	queue *postgres.Queue
}

func (t queuedTx) exec(_ context.Context, query string, args ...any) error {
	if query == insertEffect {
		t.queue.ExecRows(1, query, args...)
	} else {
		t.queue.Exec(query, args...)
	}
	return nil
}

func (t queuedTx) fail(ctx context.Context) error { return t.exec(ctx, postgresDialect.fail) }
