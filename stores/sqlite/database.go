package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// database adapts the file for the tables. Reads use separate connections, which cannot write and
// never wait. Everything else queues for the writer.
type database struct{ *Store }

var _ sqlstore.Database = database{}

// Send implements sqlstore.Sender.
func (d database) Send(ctx context.Context, s sqlstore.Statement) (int64, error) {
	return send(ctx, d.reader, s)
}

// Write implements sqlstore.Database.
func (d database) Write(ctx context.Context, f func(sqlstore.Sender) error) error {
	return d.writer.write(ctx, d.writer.patience(), func(tx *sql.Tx) error {
		return f(sqlstore.SenderFunc(func(ctx context.Context, s sqlstore.Statement) (int64, error) { return send(ctx, tx, s) }))
	})
}

// Learn implements sqlstore.Database.
func (d database) Learn(context.Context, bool) (*sqlstore.Dialect, error) { return d.dialect, nil }

// LookUp implements sqlstore.Database. It does not wait for the writer.
func (d database) LookUp(ctx context.Context, consumer int64, id []byte) (sqlstore.Row, error) {
	row, err := d.lookUp(ctx, consumer, id)
	return row.Row, err
}

// Explain implements sqlstore.Database.
func (d database) Explain(ctx context.Context, err error) error {
	return fmt.Errorf("sqlite: %w", d.explain(ctx, err))
}

// Taken implements sqlstore.Database.
func (database) Taken(err error) bool { return isUnique(err) }

// maxRow is SQLite's limit for a row, less the size of small columns.
const maxRow = 1_000_000_000 - 64<<10

// Fits implements sqlstore.Database.
func (d database) Fits(bytes int) error {
	if bytes > d.maxRow {
		return fmt.Errorf("sqlite: %w: it has %d bytes, and a row takes at most %d", stores.ErrTooLarge, bytes, d.maxRow)
	}
	return nil
}

// newDialect returns what differs in SQLite's statements. Only the writer locks anything.
func newDialect(names sqlstore.Names) *sqlstore.Dialect {
	return &sqlstore.Dialect{
		Names: names,
		Words: map[string]string{
			"now":       "CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)", // SQLite's clock has milliseconds
			"state":     stateColumns,
			"any order": "+", // excludes an index that would need sorting
			"size":      "coalesce(length(f.payload), 0) + coalesce(length(f.metadata), 0) + coalesce(length(f.facts), 0)",
		},
		In: func(column string, values []int64) (string, []any) {
			if len(values) == 1 {
				return column + " = ?", []any{values[0]}
			}
			array, _ := json.Marshal(values) // integers always encode
			return column + " IN (SELECT value FROM json_each(?))", []any{string(array)}
		},
		Pairs: func(columns [2]string, values [][2]int64) (string, []any) {
			array, _ := json.Marshal(values)
			return fmt.Sprintf("(%s, %s) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))", columns[0], columns[1]), []any{string(array)}
		},
		OrderKeys: func(keys [][]byte) (string, []any) {
			texts := make([]string, len(keys))
			for i, k := range keys {
				texts[i] = fmt.Sprintf("%X", k)
			}
			array, _ := json.Marshal(texts)
			return "hex(o.destination) || '00' || hex(o.order_key) IN (SELECT value FROM json_each(?))", []any{string(array)}
		},
		Alone:    true,
		Time:     func(t time.Time) any { return t.UnixMicro() },
		Contains: "instr(CAST(f.error AS BLOB), ?) > 0",
		SetStatus: `UPDATE {schema.}{prefix}inbox AS i SET status = %s FROM {schema.}{prefix}failure f
WHERE f.consumer = i.consumer AND f.message_id = i.message_id AND `,
	}
}

// Record implements stores.Failures. It fails at once while a handler of the key runs in this
// process. Otherwise it queues for the writer, behind claims of the key that are already queued.
// Meanwhile the key is in flight.
func (s *Store) Record(ctx context.Context, f stores.Failure) (version int64, err error) {
	consumer, err := s.tables.Known(f.Key)
	if err != nil {
		return 0, err
	}
	key := flight{consumer: consumer, id: string(f.Key.ID)}
	switch free, err := s.flights.takeOffAfter(ctx, key); {
	case err != nil:
		return 0, fmt.Errorf("sqlite: record: %w", err)
	case !free:
		return 0, fmt.Errorf("sqlite: record: %w: its handler is running", stores.ErrChanged)
	}
	defer s.flights.land(key)
	return s.tables.Record(ctx, f, s.advance)
}

// advance is sqlstore.Advance. Nothing is locked, so the next message is the first one.
func (s *Store) advance(ctx context.Context, on sqlstore.Sender, consumer int64, orderKey []byte, _ int64) error {
	_, err := on.Send(ctx, sqlstore.Statement{Text: s.sql[advanceStatement], Args: []any{consumer, orderKey}})
	return err
}

// Due implements stores.Retries. It takes the writer only if messages are due.
func (s *Store) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	return s.tables.ReserveDue(ctx, q, s.flights.open)
}

// Release implements stores.Retries. It skips messages whose handlers are running.
func (s *Store) Release(ctx context.Context, reserved []stores.Retry) error {
	waiting, err := s.waiting(reserved)
	if err != nil {
		return err
	}
	return s.contract.Release(ctx, waiting)
}

// Renew implements stores.Retries. It skips messages whose handlers are running.
func (s *Store) Renew(ctx context.Context, reserved []stores.Retry, d time.Duration) error {
	waiting, err := s.waiting(reserved)
	if err != nil {
		return err
	}
	return s.contract.Renew(ctx, waiting, d)
}

// waiting returns the messages whose handlers are not running.
func (s *Store) waiting(reserved []stores.Retry) (waiting []stores.Retry, err error) {
	for _, r := range reserved {
		consumer, err := s.tables.Known(r.Key)
		if err != nil {
			return nil, err
		}
		if !s.flights.open(consumer, string(r.Key.ID)) {
			waiting = append(waiting, r)
		}
	}
	return waiting, nil
}

// Change implements stores.Inspector. It takes the writer only if there is something to change.
// While a delivery runs in another process, which then holds the writer, the error wraps
// stores.ErrUnavailable.
func (s *Store) Change(ctx context.Context, c stores.Change) (stores.Changed, error) {
	return s.tables.Change(ctx, c, s.flights.flying, s.advance)
}

// tooBig maps SQLite's own limit to the contract's error.
func tooBig(err error) error {
	if isCode(err, sqlite3.SQLITE_TOOBIG) {
		return fmt.Errorf("%w: %w", stores.ErrTooLarge, err)
	}
	return err
}

var _ stores.Purger = (*Store)(nil)

// Overtaken implements stores.Purger. Claims and purges run one after another.
func (s *Store) Overtaken(context.Context, string) (next string, over bool, err error) {
	return "", true, nil
}
