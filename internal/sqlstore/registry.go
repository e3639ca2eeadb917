package sqlstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

const (
	findConsumer = `SELECT service, handler, {topics} FROM {schema.}{prefix}consumer WHERE id = ?`
	addConsumer  = `INSERT INTO {schema.}{prefix}consumer (id, service, handler, topics, registered_at) VALUES (?, ?, ?, {list}, {now})`
	setTopics    = `UPDATE {schema.}{prefix}consumer SET topics = {list} WHERE id = ?`
)

// ConsumerNumber returns a consumer's number in all tables. It is derived from the name, so it
// stays right if a failover or a crash of the server loses the consumer's row while processes go
// on.
func ConsumerNumber(c stores.Consumer) int64 {
	sum := sha256.Sum256([]byte("millpond consumer 1\x00" + c.String()))
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1) // 63 bits
}

// Register implements stores.Registry. It writes only what is missing.
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
	_, unknown := s.t.Consumer(r.Consumer)
	if err := s.t.learn(ctx, unknown == nil); err != nil {
		return err
	}
	reg := registration{Registration: r, Dialect: s.t.Dialect(), id: ConsumerNumber(r.Consumer)}
	err := reg.read(ctx, s.t.db, "")
	if err == nil && !reg.done {
		err = s.t.db.Write(ctx, func(tx Sender) error { return reg.write(ctx, tx) })
	}
	if err != nil {
		return s.t.Explain(ctx, err)
	}
	s.t.Add(r.Consumer, reg.id)
	return nil
}

// registration is a registration with the consumer's row.
type registration struct {
	stores.Registration
	*Dialect
	id     int64
	known  bool // the row exists
	topics []string
	done   bool // nothing to write
}

// read reads the row. It refuses another consumer's row, and an unknown topic.
func (r *registration) read(ctx context.Context, on Sender, lock string) (err error) {
	var (
		encoded []byte
		has     stores.Consumer
	)
	r.topics, r.done = []string{}, false
	r.known, err = First(ctx, on, Statement{Text: r.Fixed(findConsumer + lock), Args: []any{r.id}}, &has.Service, &has.Handler, &encoded)
	if err != nil || !r.known {
		return err
	}
	if has != r.Consumer {
		return fmt.Errorf("%w: %s and %s both have %d: give the handler another name", stores.ErrConsumerCollision, has, r.Consumer, r.id)
	}
	if err := json.Unmarshal(encoded, &r.topics); err != nil {
		return fmt.Errorf("%w: the topics of %s are not a JSON array: %w", stores.ErrUnavailable, r.Consumer, err)
	}
	r.done, err = KnowsTopic(&r.Registration, r.topics)
	return err
}

// KnowsTopic reports whether the consumer's topics already have the registration's topic. It
// refuses a topic that is not among them, unless AcceptTopic is set.
func KnowsTopic(r *stores.Registration, topics []string) (known bool, err error) {
	known = r.Topic == "" || slices.Contains(topics, r.Topic)
	if !known && len(topics) > 0 && !r.AcceptTopic {
		return false, fmt.Errorf("%w: %s is registered for the topics %q, not for %q: "+
			"if another service has this name, rename one; if the handler has moved, set AcceptTopics for one start",
			stores.ErrConsumerConflict, r.Consumer, topics, r.Topic)
	}
	return known, nil
}

func (r *registration) write(ctx context.Context, tx Sender) error {
	err := r.read(ctx, tx, "")
	if err == nil && r.known && !r.done { // others may be adding topics
		err = r.read(ctx, tx, "{for update}")
	}
	if err != nil || r.done {
		return err
	}
	topics := r.topics
	if r.Topic != "" {
		topics = append(topics, r.Topic)
	}
	encoded, err := json.Marshal(topics)
	if err != nil {
		return err
	}
	add := Statement{Text: r.Fixed(addConsumer), Args: []any{r.id, r.Consumer.Service, r.Consumer.Handler, string(encoded)}}
	if r.known {
		add = Statement{Text: r.Fixed(setTopics), Args: []any{string(encoded), r.id}}
	}
	_, err = tx.Send(ctx, add)
	return err
}
