package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

// Register implements stores.Registry.
func (s *Store) Register(ctx context.Context, r stores.Registration) error {
	if s.closed.Load() {
		return stores.ErrClosed
	}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	if err := s.Validate(ctx); err != nil {
		return err
	}
	if err := s.learn(ctx); err != nil {
		return unavailable(err)
	}
	var id int64
	err := s.transact(ctx, func(tx *sql.Tx) (err error) {
		id, err = s.register(ctx, tx, r)
		return err
	})
	switch {
	case errors.Is(err, stores.ErrConsumerConflict):
		return fmt.Errorf("mysql: %w", err)
	case err != nil:
		return unavailable(err)
	}
	s.mu.Lock()
	s.consumers[r.Consumer] = id
	s.mu.Unlock()
	return nil
}

// register reads the consumer's row, and writes it if there is something new. It always
// writes: what the server lets others read may not be on its disk yet, and if it crashed
// now the consumer would get another id, of which this program would know nothing. A
// commit of our own comes after what it has read.
func (s *Store) register(ctx context.Context, tx *sql.Tx, r stores.Registration) (id int64, err error) {
	var encoded []byte
	service, handler := []byte(r.Consumer.Service), []byte(r.Consumer.Handler)
	topics := []string{}
	err = tx.QueryRowContext(ctx, s.sql.findConsumer, service, handler).Scan(&id, &encoded)
	known, done := err == nil, false
	if known {
		done, err = s.hasTopic(r, encoded, &topics)
	}
	if known && !done && err == nil { // there is something to add, to what others may add to
		if err := tx.QueryRowContext(ctx, s.sql.findConsumer+" FOR UPDATE", service, handler).Scan(&id, &encoded); err != nil {
			return 0, err
		}
		done, err = s.hasTopic(r, encoded, &topics)
	}
	switch {
	case err != nil && (known || !errors.Is(err, sql.ErrNoRows)):
		return 0, err
	case done:
		return id, s.rewrite(ctx, tx, id)
	}
	if r.Topic != "" {
		topics = append(topics, r.Topic)
	}
	list, err := json.Marshal(topics)
	if err != nil {
		return 0, err
	}
	if known {
		_, err = tx.ExecContext(ctx, s.sql.setTopics, list, id)
		return id, err
	}
	result, err := tx.ExecContext(ctx, s.sql.addConsumer, service, handler, list)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// rewrite writes a consumer's row, and leaves it as it was. The servers do not write what
// is not changed.
func (s *Store) rewrite(ctx context.Context, tx *sql.Tx, id int64) error {
	for _, by := range []int{1, -1} {
		if _, err := tx.ExecContext(ctx, s.sql.rewriteConsumer, by, id); err != nil {
			return err
		}
	}
	return nil
}

// hasTopic reports whether there is nothing to add, or refuses the topic.
func (s *Store) hasTopic(r stores.Registration, encoded []byte, topics *[]string) (bool, error) {
	*topics = nil
	if err := json.Unmarshal(encoded, topics); err != nil {
		return false, fmt.Errorf("the topics of %s are not a JSON array: %w", r.Consumer, err)
	}
	if r.Topic == "" || slices.Contains(*topics, r.Topic) {
		return true, nil
	}
	if len(*topics) > 0 && !r.AcceptTopic {
		return false, fmt.Errorf("%w: %s is registered for the topics %q, not for %q: "+
			"if another service has this name, rename one; if the handler has moved, set AcceptTopics for one start",
			stores.ErrConsumerConflict, r.Consumer, *topics, r.Topic)
	}
	return false, nil
}
