package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// ready checks the schema before the first call of an operator's, who may have registered
// nothing.
func (s *Store) ready(ctx context.Context) error {
	if s.validated.Load() {
		return nil
	}
	if err := s.check(ctx); err != nil {
		return s.known(err)
	}
	s.validated.Store(true)
	return nil
}

// consumersNamed returns the consumers that match; empty names match all.
func (s *Store) consumersNamed(ctx context.Context, service, handler string) (sqlstore.Consumers, error) {
	c := make(sqlstore.Consumers)
	err := sqlstore.Each(ctx, s.reader, s.text(`SELECT id, service, handler FROM {schema.}{prefix}consumer
		WHERE (?1 = '' OR service = ?1) AND (?2 = '' OR handler = ?2)`), []any{service, handler}, func(scan sqlstore.Scan) error {
		var (
			id       int64
			consumer stores.Consumer
		)
		err := scan(&id, &consumer.Service, &consumer.Handler)
		c[id] = consumer
		return err
	})
	return c, err
}

// text expands a query that is not needed often.
func (s *Store) text(query string) string { return expand(s.names, query) }

// matching returns the condition of a filter on the table of failures, as f.
//
// Pages are read in the order of their numbers. An index that would need sorting is kept
// out of it by a unary plus; one of those that select few rows is let in.
func matching(f stores.Filter, c sqlstore.Consumers) *sqlstore.Condition {
	w := &sqlstore.Condition{}
	if len(f.Status) == 0 {
		w.And("f.status IN (3, 4)")
	} else {
		w.And("f.status IN (SELECT value FROM json_each(?))", array(f.Status))
	}
	few := f.Cause != "" || len(f.ID) > 0
	switch {
	case few && len(c) == 1:
		w.And("f.consumer = ?", c.IDs()[0])
	case few:
		w.And("f.consumer IN (SELECT value FROM json_each(?))", array(c.IDs()))
	case f.Service != "" || f.Handler != "":
		w.And("+f.consumer IN (SELECT value FROM json_each(?))", array(c.IDs()))
	}
	if f.Class != "" {
		w.And("f.class = ?", string(f.Class))
	}
	if f.Cause != "" {
		w.And("f.cause = ?", f.Cause)
	}
	if f.Topic != "" {
		w.And("f.topic = ?", f.Topic)
	}
	if f.ErrorContains != "" {
		w.And("instr(CAST(f.error AS BLOB), CAST(? AS BLOB)) > 0", f.ErrorContains)
	}
	if len(f.Numbers) > 0 {
		w.And("f.number IN (SELECT value FROM json_each(?))", array(f.Numbers))
	}
	if len(f.ID) > 0 {
		w.And("f.message_id = ?", f.ID)
	}
	if !f.Since.IsZero() {
		w.And("f.last_at >= ?", f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		w.And("f.last_at < ?", f.Until.UnixMicro())
	}
	return w
}

// array is a JSON array of integers, for json_each.
func array[N ~int64 | ~uint8](values []N) string {
	wide := make([]int64, len(values)) // bytes would become a string
	for i, v := range values {
		wide[i] = int64(v)
	}
	b, _ := json.Marshal(wide) //nolint:errchkjson // integers can always be written
	return string(b)
}

// inspect runs one call of an operator's.
func (s *Store) inspect(ctx context.Context, what string, f func() error) error {
	err := s.ready(ctx)
	if err == nil {
		err = f()
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlite: %s: %w", what, s.explain(ctx, err))
}

var errLimit = errors.New("the limit must be positive")
