package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

// consumers maps ids to names, of all consumers that the names select.
type consumers map[int64]stores.Consumer

func (c consumers) ids() []int64 {
	ids := make([]int64, 0, len(c))
	for id := range c {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// consumersNamed returns the consumers that match; empty names match all.
func (s *Store) consumersNamed(ctx context.Context, service, handler string) (consumers, error) {
	c := make(consumers)
	err := each(ctx, s.reader, s.text(`SELECT id, service, handler FROM {schema.}{prefix}consumer
		WHERE (?1 = '' OR service = ?1) AND (?2 = '' OR handler = ?2)`), []any{service, handler}, func(scan scan) error {
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

// where is a condition with its arguments. Values are bound, never written into it.
type where struct {
	terms []string
	args  []any
}

func (w *where) and(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

func (w *where) String() string {
	if len(w.terms) == 0 {
		return "1"
	}
	return strings.Join(w.terms, " AND ")
}

// matching returns the condition of a filter on the table of failures, as f.
//
// Pages are read in the order of their numbers. An index that would need sorting is kept
// out of it by a unary plus; one of those that select few rows is let in.
func matching(f stores.Filter, c consumers) *where {
	w := &where{}
	if len(f.Status) == 0 {
		w.and("f.status IN (3, 4)")
	} else {
		w.and("f.status IN (SELECT value FROM json_each(?))", array(f.Status))
	}
	few := f.Group != "" || len(f.ID) > 0
	switch {
	case few && len(c) == 1:
		w.and("f.consumer = ?", c.ids()[0])
	case few:
		w.and("f.consumer IN (SELECT value FROM json_each(?))", array(c.ids()))
	case f.Service != "" || f.Handler != "":
		w.and("+f.consumer IN (SELECT value FROM json_each(?))", array(c.ids()))
	}
	if f.Class != "" {
		w.and("f.class = ?", string(f.Class))
	}
	if f.Group != "" {
		w.and("f.error_group = ?", f.Group)
	}
	if f.Topic != "" {
		w.and("f.topic = ?", f.Topic)
	}
	if f.ErrorContains != "" {
		w.and("instr(CAST(f.error AS BLOB), CAST(? AS BLOB)) > 0", f.ErrorContains)
	}
	if len(f.Numbers) > 0 {
		w.and("f.number IN (SELECT value FROM json_each(?))", array(f.Numbers))
	}
	if len(f.ID) > 0 {
		w.and("f.message_id = ?", f.ID)
	}
	if !f.Since.IsZero() {
		w.and("f.last_at >= ?", f.Since.UnixMicro())
	}
	if !f.Until.IsZero() {
		w.and("f.last_at < ?", f.Until.UnixMicro())
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

// timeOf reads a time column; NULL is the zero time.
func timeOf(micros *int64) time.Time {
	if micros == nil {
		return time.Time{}
	}
	return time.UnixMicro(*micros)
}
