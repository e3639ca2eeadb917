package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

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
	w := &where{}
	if service != "" {
		w.and("service = ?", []byte(service))
	}
	if handler != "" {
		w.and("handler = ?", []byte(handler))
	}
	c := make(consumers)
	err := each(ctx, s.db, s.text(`SELECT id, service, handler FROM {schema.}{prefix}consumer WHERE `+w.String()), w.args, func(scan scan) error {
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
func (s *Store) text(query string) string { return expand(s.qualified, query) }

// where is a condition with its arguments. Strings are bound, as bytes, so that no
// character set and no collation has a part in comparing them.
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
		return "1 = 1"
	}
	return strings.Join(w.terms, " AND ")
}

// matching returns the condition of a filter on the table of failures, as f.
func matching(f stores.Filter, c consumers) *where {
	w := &where{}
	status := f.Status
	if len(status) == 0 {
		status = []stores.Status{stores.StatusPending, stores.StatusFailed}
	}
	w.and("f.status IN " + in(status))
	if f.Service != "" || f.Handler != "" || f.Group != "" || len(f.ID) > 0 {
		w.and("f.consumer IN " + in(c.ids()))
	}
	for _, equal := range []struct{ column, value string }{
		{"f.class", string(f.Class)}, {"f.error_group", f.Group}, {"CAST(f.topic AS BINARY)", f.Topic},
	} {
		if equal.value != "" {
			w.and(equal.column+" = ?", []byte(equal.value))
		}
	}
	if f.ErrorContains != "" {
		w.and("LOCATE(?, CAST(f.error AS BINARY)) > 0", []byte(f.ErrorContains))
	}
	if len(f.Numbers) > 0 {
		w.and("f.number IN " + in(f.Numbers))
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

// inspect runs one call of an operator's, which must have been given a limit.
func (s *Store) inspect(ctx context.Context, limit int, f func() error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if limit <= 0 {
		return errLimit
	}
	if err := f(); err != nil {
		return s.unavailable(err)
	}
	return nil
}

// errLimit: the limit of a query is a mistake in the program.
var errLimit = errors.New("mysql: the limit must be positive")

// errVerb names the verbs that there are.
func errVerb(verb stores.Verb, what string, verbs ...stores.Verb) error {
	return fmt.Errorf("mysql: %q is no verb for %s: use %q", verb, what, verbs)
}
