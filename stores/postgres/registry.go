package postgres

import (
	"context"
	"fmt"
	"slices"

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
	if err := s.learn(ctx); err != nil {
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
			"if another service has this name, rename one; if the handler has moved, set AcceptTopics for one start",
			stores.ErrConsumerConflict, r.Consumer, topics, r.Topic)
	}
	s.mu.Lock()
	s.consumers[r.Consumer] = id
	s.mu.Unlock()
	return nil
}
