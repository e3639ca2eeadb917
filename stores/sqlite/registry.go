package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// maxTopicBytes is how much is kept of a topic's name.
const maxTopicBytes = 2 << 10

// Register implements stores.Registry. It writes only what is new.
func (s *Store) Register(ctx context.Context, r stores.Registration) error {
	if err := r.Validate(); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	if err := s.check(ctx); err != nil {
		return s.failed("register", err)
	}
	id, err := register(ctx, s.reader, &s.sql, r, nil)
	if errors.Is(err, errUnregistered) {
		err = s.writer.write(ctx, s.writer.patience(), func(tx *sql.Tx) error {
			id, err = register(ctx, tx, &s.sql, r, tx)
			return err
		})
	}
	if err != nil {
		return s.failed("register", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consumers[r.Consumer] = id
	return nil
}

// errUnregistered says that the row must be written.
var errUnregistered = errors.New("the consumer or its topic is new")

// register reads the consumer's row and, if there is something new, writes it in tx.
func register(ctx context.Context, q sqlstore.Querier, texts *statements, r stores.Registration, tx *sql.Tx) (id int64, err error) {
	var encoded string
	err = q.QueryRowContext(ctx, texts.findConsumer, r.Consumer.Service, r.Consumer.Handler).Scan(&id, &encoded)
	known := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	topics := []string{}
	if known {
		if err := json.Unmarshal([]byte(encoded), &topics); err != nil {
			return 0, fmt.Errorf("the topics of %s are not a JSON array: %w", r.Consumer, err)
		}
		if r.Topic == "" || slices.Contains(topics, r.Topic) {
			return id, nil
		}
		if len(topics) > 0 && !r.AcceptTopic {
			return 0, fmt.Errorf("%w: %s is registered for %s, not for %q: give this handler or its service another name, "+
				"or, if it is the same handler and has moved, accept the topic",
				stores.ErrConsumerConflict, r.Consumer, quoted(topics), r.Topic)
		}
	}
	if tx == nil {
		return 0, errUnregistered
	}
	if r.Topic != "" {
		topics = append(topics, r.Topic)
	}
	text, err := json.Marshal(topics)
	if err != nil {
		return 0, err
	}
	if known {
		_, err = tx.ExecContext(ctx, texts.setTopics, string(text), id)
		return id, err
	}
	result, err := tx.ExecContext(ctx, texts.addConsumer, r.Consumer.Service, r.Consumer.Handler, string(text))
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

func quoted(topics []string) string {
	names := make([]string, len(topics))
	for i, topic := range topics {
		names[i] = fmt.Sprintf("%q", topic)
	}
	return strings.Join(names, ", ")
}
