package tables

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

// Register implements stores.Registry.
func (s Store) Register(ctx context.Context, r stores.Registration) error {
	if s.t.closed.Load() {
		return stores.ErrClosed
	}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if err := s.Validate(ctx); err != nil {
		return err
	}
	if err := s.t.learn(ctx); err != nil {
		return unavailable(err)
	}
	var (
		id     int32
		found  bool
		listed []byte
		topics []string
	)
	steps := []Statement{{Text: s.t.sql.register, Args: []any{r.Consumer.Service, r.Consumer.Handler, r.Topic}}}
	if r.Topic != "" {
		steps = append(steps, Statement{Text: s.t.sql.addTopic, Args: []any{r.Consumer.Service, r.Consumer.Handler, r.Topic, r.AcceptTopic}})
	}
	steps = append(steps, Statement{
		Text: s.t.sql.consumer, Args: []any{r.Consumer.Service, r.Consumer.Handler},
		Read: first(&found, &id, &listed),
	})
	if err := s.t.db.Batch(ctx, steps...); err != nil {
		return unavailable(err)
	}
	if err := json.Unmarshal(listed, &topics); err != nil {
		return fmt.Errorf("postgres: %w: the topics of %s: %w", stores.ErrUnavailable, r.Consumer, err)
	}
	if r.Topic != "" && !slices.Contains(topics, r.Topic) {
		return fmt.Errorf("postgres: %w: %s is registered for the topics %q, not for %q: "+
			"if another service has this name, rename one; if the handler has moved, set AcceptTopics for one start",
			stores.ErrConsumerConflict, r.Consumer, topics, r.Topic)
	}
	s.t.mu.Lock()
	s.t.consumers[r.Consumer] = id
	s.t.mu.Unlock()
	return nil
}
