package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// consumersNamed returns the consumers that match; empty names match all.
func (s *Store) consumersNamed(ctx context.Context, service, handler string) (sqlstore.Consumers, error) {
	w := &sqlstore.Condition{}
	if service != "" {
		w.And("service = ?", []byte(service))
	}
	if handler != "" {
		w.And("handler = ?", []byte(handler))
	}
	c := make(sqlstore.Consumers)
	err := sqlstore.Each(ctx, s.db, s.text(`SELECT id, service, handler FROM {schema.}{prefix}consumer WHERE `+w.String()), w.Args, func(scan sqlstore.Scan) error {
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

// matching returns the condition of a filter on the table of failures, as f. Strings are
// bound as bytes, so that no character set and no collation has a part in comparing them.
func matching(f stores.Filter, c sqlstore.Consumers) *sqlstore.Condition {
	w := &sqlstore.Condition{}
	status := f.Status
	if len(status) == 0 {
		status = []stores.Status{stores.StatusPending, stores.StatusFailed}
	}
	w.And("f.status IN " + in(status))
	if f.Service != "" || f.Handler != "" || f.Cause != "" || len(f.ID) > 0 {
		w.And("f.consumer IN " + in(c.IDs()))
	}
	for _, equal := range []struct{ column, value string }{
		{"f.class", string(f.Class)}, {"f.cause", f.Cause}, {"CAST(f.topic AS BINARY)", f.Topic},
	} {
		if equal.value != "" {
			w.And(equal.column+" = ?", []byte(equal.value))
		}
	}
	if f.ErrorContains != "" {
		w.And("LOCATE(?, CAST(f.error AS BINARY)) > 0", []byte(f.ErrorContains))
	}
	if len(f.Numbers) > 0 {
		w.And("f.number IN " + in(f.Numbers))
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
