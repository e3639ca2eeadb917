package tables

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// database adapts the driver for the code shared by all SQL stores.
type database struct{ t *Tables }

var (
	_ sqlstore.Database = database{}
	_ sqlstore.Executor = database{}
)

// Send implements sqlstore.Sender.
func (d database) Send(ctx context.Context, s Statement) (int64, error) { return d.t.db.Send(ctx, s) }

// Exec implements sqlstore.Executor in one round trip, plus one for each serialization failure,
// which the server's default isolation may cause.
func (d database) Exec(ctx context.Context, s Statement) (affected int64, err error) {
	err = sqlstore.Retry(ctx, Contended, func() error {
		affected, err = d.t.db.Send(ctx, s)
		return err
	})
	return affected, err
}

// Write implements sqlstore.Database.
func (d database) Write(ctx context.Context, f func(sqlstore.Sender) error) error {
	inTheWay := func(err error) bool { return Contended(err) || d.Taken(err) }
	return sqlstore.Retry(ctx, inTheWay, func() error { return d.t.db.InTx(ctx, f) })
}

// Learn implements sqlstore.Database.
func (d database) Learn(ctx context.Context, again bool) (*sqlstore.Dialect, error) {
	if err := d.t.learn(ctx, again); err != nil {
		return nil, err // another call may be learning right now
	}
	return d.t.dialect, nil
}

// SchemaState implements sqlstore.Database.
func (d database) SchemaState(ctx context.Context) (sqlstore.SchemaState, error) {
	if err := d.t.recognise(ctx); err != nil {
		return sqlstore.SchemaState{}, err
	}
	return d.t.schemaState(ctx, d.t.db)
}

// LookUp implements sqlstore.Database in one round trip, which it may share with others.
func (d database) LookUp(ctx context.Context, consumer int64, id []byte) (sqlstore.Row, error) {
	return d.t.lookUp(ctx, consumer, id)
}

// Explain implements sqlstore.Database.
func (database) Explain(_ context.Context, err error) error { return Unavailable(err) }

// Taken implements sqlstore.Database.
func (database) Taken(err error) bool { return sqlState(err) == uniqueViolation }

// maxKept is the largest payload that is kept, in bytes. The server accepts messages up to 1 GiB,
// and needs several times a value's size to handle it.
const maxKept = 256 << 20

// Fits implements sqlstore.Database.
func (database) Fits(bytes int) error {
	if bytes > maxKept {
		return fmt.Errorf("postgres: %w: %d bytes, at most %d can be kept", stores.ErrTooLarge, bytes, maxKept)
	}
	return nil
}

// newDialect returns what differs in the server's statements.
func newDialect(names sqlstore.Names) *sqlstore.Dialect {
	return &sqlstore.Dialect{
		Names: names,
		Words: map[string]string{
			// Times are read as microseconds, because their text depends on settings that a handler
			// may change.
			"now": "clock_timestamp()", "us": "(extract(epoch from ", "/us": ") * 1000000)::bigint",
			"state": stateColumns,
			// Reads the inbox by its key, however large a page is.
			"inbox of f": `LEFT JOIN LATERAL (
	SELECT fingerprint, traceparent FROM {schema.}{prefix}inbox WHERE consumer = f.consumer AND message_id = f.message_id OFFSET 0
) i ON true`,
			"page":       `f.number = ANY (SELECT p.one FROM unnest(ARRAY(SELECT f.number FROM {schema.}{prefix}failure f WHERE `,
			"/page":      `)) AS p (one) WHERE ` + fewNumbers + ` GROUP BY p.one) ORDER BY f.number DESC`,
			"for update": " FOR UPDATE", "free": " FOR UPDATE SKIP LOCKED", "own number": "OVERRIDING SYSTEM VALUE",
			"topics": "to_json(topics)::text", "list": "ARRAY(SELECT json_array_elements_text(?::text::json))",
			"empty":        "''::bytea",
			"microseconds": "::bigint * interval '1 microsecond'", "smallint": "::smallint", "text": "::text", "boolean": "::boolean", "blob": "::bytea",
		},
		Finish: func(sql string) string {
			var numbered strings.Builder
			for i := 1; ; i++ {
				before, after, more := strings.Cut(sql, "?")
				numbered.WriteString(before)
				if !more {
					return qualify(numbered.String())
				}
				numbered.WriteString("$" + strconv.Itoa(i))
				sql = after
			}
		},
		In: func(column string, values []int64) (string, []any) {
			return column + " = ANY (?::bigint[])", []any{values}
		},
		// Rows are locked in the order of their keys, so that others that lock several do not
		// deadlock with it: GROUP BY keeps the planner from hashing the elements.
		Keys: func(column string, values []int64) (string, []any) {
			return column + " = ANY (SELECT p.one FROM unnest(?::bigint[]) AS p (one) WHERE " + fewNumbers + " GROUP BY p.one ORDER BY p.one)", []any{values}
		},
		Pairs: func(columns [2]string, values [][2]int64) (string, []any) {
			first, second := make([]int64, len(values)), make([]int64, len(values))
			for i, v := range values {
				first[i], second[i] = v[0], v[1]
			}
			return "(" + columns[0] + ", " + columns[1] + ") = ANY (SELECT p.one, p.other FROM ROWS FROM (unnest(?::bigint[]), unnest(?::bigint[])) AS p (one, other) WHERE " + fewNumbers + " GROUP BY p.one, p.other ORDER BY p.one, p.other)",
				[]any{first, second}
		},
		OrderKeys: func(keys [][]byte) (string, []any) { // a subquery, which is hashed
			return "(convert_to(o.destination, 'UTF8') || decode('00', 'hex') || o.order_key) = ANY (SELECT unnest(?::bytea[]))", []any{keys}
		},
		Time: func(t time.Time) any { return t },

		LockOrderKey: "SELECT pg_advisory_xact_lock(?)::text",
		Contains:     "position(?::bytea IN convert_to(f.error, 'UTF8')) > 0",
	}
}
