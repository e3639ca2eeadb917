package tables

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// query is SQL text that is put together as it is needed. Values are only ever bound.
type query struct {
	names sqlstore.Names
	where []string
	args  []any
}

// bind returns the parameter that stands for a value.
func (q *query) bind(value any) string {
	q.args = append(q.args, value)
	return "$" + strconv.Itoa(len(q.args))
}

// and adds a condition, in which each ? stands for one of the values.
func (q *query) and(condition string, values ...any) {
	for _, value := range values {
		if s, ok := value.(string); ok && (!utf8.ValidString(s) || strings.ContainsRune(s, 0)) {
			condition, values = "false", nil // no text column holds such a string
			break
		}
	}
	for _, value := range values {
		condition = strings.Replace(condition, "?", q.bind(value), 1)
	}
	q.where = append(q.where, condition)
}

// text replaces {where} by all conditions so far, besides the names.
func (q *query) text(sql string) string {
	where := "true"
	if len(q.where) > 0 {
		where = strings.Join(q.where, " AND ")
	}
	return expand(q.names, strings.ReplaceAll(sql, "{where}", where))
}

// consumers adds the conditions for the consumer of a table with that alias.
func (q *query) consumers(alias, service, handler string) {
	if service == "" && handler == "" {
		return
	}
	named := query{args: q.args}
	if service != "" {
		named.and("service = ?", service)
	}
	if handler != "" {
		named.and("handler = ?", handler)
	}
	q.args = named.args
	q.and(alias + ".consumer = ANY (ARRAY(SELECT id FROM {schema.}{prefix}consumer WHERE " + strings.Join(named.where, " AND ") + "))")
}

// failures adds the conditions of a filter, for a failure called f.
func (q *query) failures(f stores.Filter) {
	q.consumers("f", f.Service, f.Handler)
	status := []int16{int16(stores.StatusPending), int16(stores.StatusFailed)}
	if len(f.Status) > 0 {
		status = status[:0]
		for _, s := range f.Status {
			status = append(status, int16(s))
		}
	}
	q.and("f.status = ANY (?::smallint[])", status)
	for _, equal := range []struct{ column, value string }{
		{"f.class", string(f.Class)}, {"f.cause", f.Cause}, {"f.topic", f.Topic},
	} {
		if equal.value != "" {
			q.and(equal.column+" = ?", equal.value)
		}
	}
	if f.ErrorContains != "" {
		q.and("position(?::text IN f.error) > 0", f.ErrorContains)
	}
	if f.Numbers != nil {
		q.and("f.number = ANY (?::bigint[])", f.Numbers)
	}
	if f.ID != nil {
		q.and("f.message_id = ?", f.ID)
	}
	if !f.Since.IsZero() {
		q.and("f.last_at >= ?", f.Since)
	}
	if !f.Until.IsZero() {
		q.and("f.last_at < ?", f.Until)
	}
}
