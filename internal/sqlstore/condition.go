package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millpond-go/millpond/stores"
)

// Condition is the text after WHERE, with a ? for each argument. The zero value holds for every
// row.
type Condition struct {
	Args []any

	terms []string
}

// And adds a term with its arguments. If a string argument fits no text column, the condition holds
// for no row.
func (c *Condition) And(term string, args ...any) {
	for _, arg := range args {
		if s, ok := arg.(string); ok && (!utf8.ValidString(s) || strings.ContainsRune(s, 0)) {
			term, args = "1 = 0", nil
			break
		}
	}
	c.terms = append(c.terms, term)
	c.Args = append(c.Args, args...)
}

// in adds that a column has one of some values.
func (c *Condition) in(d *Dialect, column string, values []int64) {
	term, args := d.In(column, values)
	c.And(term, args...)
}

// keys is the condition of rows that have one of some keys.
func (d *Dialect) keys(column string, values []int64) (condition string, args []any) {
	if d.Keys == nil {
		return d.In(column, values)
	}
	return d.Keys(column, values)
}

// Clone returns a copy. Terms added to the copy are not added to c.
func (c *Condition) Clone() *Condition {
	return &Condition{Args: slices.Clone(c.Args), terms: slices.Clone(c.terms)}
}

// String returns the text.
func (c *Condition) String() string {
	if len(c.terms) == 0 {
		return "1 = 1"
	}
	return strings.Join(c.terms, " AND ")
}

// Consumers maps the numbers in the tables to consumers.
type Consumers map[int64]stores.Consumer

// IDs returns the numbers in ascending order.
func (c Consumers) IDs() []int64 { return slices.Sorted(maps.Keys(c)) }

// Sorted returns the consumers by their names.
func (c Consumers) Sorted() []stores.Consumer {
	return slices.SortedFunc(maps.Values(c), compareConsumers)
}

func compareConsumers(a, b stores.Consumer) int {
	return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Handler, b.Handler))
}

// consumersNamed returns the consumers that match; empty names match all.
func (t *Tables) consumersNamed(ctx context.Context, service, handler string) (Consumers, error) {
	w := &Condition{}
	if service != "" {
		w.And("service = ?", service)
	}
	if handler != "" {
		w.And("handler = ?", handler)
	}
	c := make(Consumers)
	_, err := list(ctx, t.db, Statement{Text: t.fixed(`SELECT id, service, handler FROM {schema.}{prefix}consumer WHERE ` + w.String()), Args: w.Args},
		func(rows Rows) (consumer stores.Consumer, err error) {
			var id int64
			err = rows.Scan(&id, &consumer.Service, &consumer.Handler)
			c[id] = consumer
			return consumer, err
		})
	return c, err
}

// Reserved holds for failures f that a retry worker has reserved or that are under a lease.
const Reserved = "f.status = 3 AND (f.reserved OR f.holder IS NOT NULL) AND f.due_at > {now}"

// Matching returns a filter's condition on the table of failures, as f, and the consumers that
// match it.
func (t *Tables) Matching(ctx context.Context, f stores.Filter) (*Condition, Consumers, error) {
	c, err := t.consumersNamed(ctx, f.Service, f.Handler)
	if err != nil {
		return nil, nil, err
	}
	d, w := t.Dialect(), &Condition{}
	statuses := []int64{int64(stores.StatusPending), int64(stores.StatusFailed)}
	if len(f.Status) > 0 {
		statuses = nil
		for _, s := range f.Status {
			statuses = append(statuses, int64(s))
		}
	}
	w.in(d, "f.status", statuses)
	switch {
	case f.Cause != "" || len(f.ID) > 0: // few rows, and there is an index
		w.in(d, "f.consumer", c.IDs())
	case f.Service != "" || f.Handler != "":
		w.in(d, "{any order}f.consumer", c.IDs())
	}
	for _, equal := range []struct{ column, value string }{
		{"f.class", string(f.Class)}, {"f.cause", f.Cause}, {"{bytes}f.topic{/bytes}", f.Topic},
	} {
		if equal.value != "" {
			w.And(equal.column+" = ?", equal.value)
		}
	}
	if f.ErrorContains != "" {
		w.And(d.Contains, []byte(f.ErrorContains))
	}
	if f.Numbers != nil {
		w.in(d, "f.number", f.Numbers)
	}
	if f.ID != nil {
		w.And("f.message_id = ?", f.ID)
	}
	if f.OrderKey != nil {
		w.And("f.order_key = ?", f.OrderKey)
	}
	if f.Reserved {
		w.And(Reserved)
	}
	if !f.Since.IsZero() {
		w.And("f.last_at >= ?", d.Time(f.Since))
	}
	if !f.Until.IsZero() {
		w.And("f.last_at < ?", d.Time(f.Until))
	}
	return w, c, nil
}
