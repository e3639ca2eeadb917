package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

const (
	findConsumer = `SELECT id, {topics} FROM {schema.}{prefix}consumer WHERE service = ? AND handler = ?`
	addConsumer  = `INSERT INTO {schema.}{prefix}consumer (service, handler, topics, registered_at) VALUES (?, ?, {list}, {now})`
	setTopics    = `UPDATE {schema.}{prefix}consumer SET topics = {list} WHERE id = ?`
)

// Register implements stores.Registry. It writes only what is new, unless what it has read
// may not be on the server's disk yet: if the server crashed the consumer would get another
// id, of which this program would know nothing.
func (s Store) Register(ctx context.Context, r stores.Registration) error {
	if s.t.closed.Load() {
		return stores.ErrClosed
	}
	if err := r.Validate(); err != nil {
		return fmt.Errorf("%s: %w", s.t.name, err)
	}
	if err := s.Validate(ctx); err != nil {
		return err
	}
	if err := s.t.learn(ctx); err != nil {
		return err
	}
	reg := registration{Registration: r, Dialect: s.t.Dialect()}
	err := reg.read(ctx, s.t.db, "")
	if err == nil && (!reg.done || reg.Rewrite != nil) {
		err = s.t.db.Write(ctx, func(tx Sender) error { return reg.write(ctx, tx) })
	}
	if err != nil {
		return s.t.Explain(ctx, err)
	}
	s.t.mu.Lock()
	s.t.consumers[r.Consumer] = reg.id
	s.t.mu.Unlock()
	return nil
}

// registration is one with the consumer's row.
type registration struct {
	stores.Registration
	*Dialect
	id     int64 // 0: there is no row
	topics []string
	done   bool // there is nothing to write
}

// read reads the row, and refuses a topic that is not the consumer's.
func (r *registration) read(ctx context.Context, on Sender, lock string) error {
	var encoded []byte
	r.id, r.topics, r.done = 0, []string{}, false
	known, err := First(ctx, on, Statement{Text: r.Fixed(findConsumer + lock), Args: []any{r.Consumer.Service, r.Consumer.Handler}}, &r.id, &encoded)
	if err != nil || !known {
		return err
	}
	if err := json.Unmarshal(encoded, &r.topics); err != nil {
		return fmt.Errorf("%w: the topics of %s are not a JSON array: %w", stores.ErrUnavailable, r.Consumer, err)
	}
	r.done = r.Topic == "" || slices.Contains(r.topics, r.Topic)
	if !r.done && len(r.topics) > 0 && !r.AcceptTopic {
		return fmt.Errorf("%w: %s is registered for the topics %q, not for %q: "+
			"if another service has this name, rename one; if the handler has moved, set AcceptTopics for one start",
			stores.ErrConsumerConflict, r.Consumer, r.topics, r.Topic)
	}
	return nil
}

func (r *registration) write(ctx context.Context, tx Sender) error {
	err := r.read(ctx, tx, "")
	if err == nil && r.id != 0 && !r.done { // others may add to it too
		err = r.read(ctx, tx, "{for update}")
	}
	if err != nil {
		return err
	}
	if r.done {
		for _, text := range r.Rewrite {
			if _, err := tx.Send(ctx, Statement{Text: r.Fixed(text), Args: []any{r.id}}); err != nil {
				return err
			}
		}
		return nil
	}
	topics := r.topics
	if r.Topic != "" {
		topics = append(topics, r.Topic)
	}
	encoded, err := json.Marshal(topics)
	if err != nil {
		return err
	}
	if r.id != 0 {
		_, err = tx.Send(ctx, Statement{Text: r.Fixed(setTopics), Args: []any{string(encoded), r.id}})
		return err
	}
	if _, err = tx.Send(ctx, Statement{Text: r.Fixed(addConsumer), Args: []any{r.Consumer.Service, r.Consumer.Handler, string(encoded)}}); err != nil {
		return err
	}
	return r.read(ctx, tx, "")
}
