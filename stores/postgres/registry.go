package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores"
)

// Register implements stores.Registry.
func (s *Store) Register(ctx context.Context, r stores.Registration) error {
	if s.closed.Load() {
		return stores.ErrClosed
	}
	if err := r.Consumer.Validate(); err != nil {
		return fmt.Errorf("%w: %w", stores.ErrInvalidKey, err)
	}
	if err := s.Validate(ctx); err != nil {
		return err
	}
	if err := s.limits.load(ctx, s); err != nil {
		return unavailable(err)
	}
	var (
		id     int32
		topics []string
		batch  pgx.Batch
	)
	batch.Queue(s.sql.register, r.Consumer.Service, r.Consumer.Handler, r.Topic)
	if r.Topic != "" {
		batch.Queue(s.sql.addTopic, r.Consumer.Service, r.Consumer.Handler, r.Topic, r.AcceptTopic)
	}
	batch.Queue(s.sql.consumer, r.Consumer.Service, r.Consumer.Handler).QueryRow(func(row pgx.Row) error {
		return row.Scan(&id, &topics)
	})
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return unavailable(err)
	}
	if r.Topic != "" && !slices.Contains(topics, r.Topic) {
		return fmt.Errorf("postgres: %w: %s is registered for the topics %q, not for %q: "+
			"if another service has this name, rename one; if the handler has moved, accept the new topic once",
			stores.ErrConsumerConflict, r.Consumer, topics, r.Topic)
	}
	s.mu.Lock()
	s.consumers[r.Consumer] = id
	s.mu.Unlock()
	return nil
}

// serverLimits are the timeouts that connections have of their own, which the bound
// of a claim must not raise.
type serverLimits struct {
	once            sync.Mutex
	loaded          bool
	idle, statement time.Duration // 0: none
}

func (l *serverLimits) load(ctx context.Context, s *Store) error {
	l.once.Lock()
	defer l.once.Unlock()
	if l.loaded {
		return nil
	}
	err := s.pool.QueryRow(ctx, `SELECT
(SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout') * 1000000,
(SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout') * 1000000`).Scan(&l.idle, &l.statement)
	l.loaded = err == nil
	return err
}

// within returns the settings for one transaction in milliseconds.
func (l *serverLimits) within(bound time.Duration) (idle, statement string) {
	return milliseconds(l.idle, bound), milliseconds(l.statement, bound)
}

func milliseconds(own, bound time.Duration) string {
	if bound == 0 || own != 0 && own < bound {
		bound = own
	}
	return strconv.FormatInt(bound.Milliseconds(), 10)
}
