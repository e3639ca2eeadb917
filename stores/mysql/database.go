package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// database adapts the server for the tables.
type database struct{ *Store }

var _ sqlstore.Database = database{}

// Send implements sqlstore.Sender.
func (d database) Send(ctx context.Context, s sqlstore.Statement) (affected int64, err error) {
	err = d.on(ctx, func(conn *sql.Conn) error {
		affected, err = sqlstore.Send(ctx, conn, asBytes(s))
		return err
	})
	return affected, err
}

// asBytes binds text as bytes, so that no character set changes it and no collation compares it.
func asBytes(s sqlstore.Statement) sqlstore.Statement {
	args := make([]any, len(s.Args))
	for i, arg := range s.Args {
		if text, ok := arg.(string); ok {
			arg = []byte(text)
		}
		args[i] = arg
	}
	s.Args = args
	return s
}

// Write implements sqlstore.Database.
func (d database) Write(ctx context.Context, f func(sqlstore.Sender) error) error {
	committing := false
	inTheWay := func(err error) bool {
		return (isContended(err) || number(err) == duplicateEntry) && !(committing && (isUndecided(err) || number(err) == withoutNumber))
	}
	return sqlstore.Retry(ctx, inTheWay, func() error {
		committing = false
		return d.on(ctx, func(conn *sql.Conn) error {
			tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				return err
			}
			send := func(ctx context.Context, s sqlstore.Statement) (int64, error) { return sendLarge(ctx, tx, s) }
			if err := f(sqlstore.SenderFunc(send)); err != nil {
				_ = tx.Rollback()
				return err
			}
			committing = true
			return undecided(tx.Commit())
		})
	})
}

// sendLarge sends a statement in a short transaction. Large values are not put into its text.
func sendLarge(ctx context.Context, tx *sql.Tx, statement sqlstore.Statement) (int64, error) {
	const large = 256 << 10
	size := 0
	for _, arg := range statement.Args {
		if b, ok := arg.([]byte); ok {
			size += len(b)
		}
	}
	statement = asBytes(statement)
	if size < large {
		return sqlstore.Send(ctx, tx, statement)
	}
	prepared, err := tx.PrepareContext(ctx, statement.Text)
	if err != nil {
		return 0, err
	}
	defer prepared.Close()
	return sqlstore.Send(ctx, ofPrepared{prepared}, statement)
}

// ofPrepared sends a prepared statement, whatever the text.
type ofPrepared struct{ *sql.Stmt }

func (p ofPrepared) QueryContext(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
	return p.Stmt.QueryContext(ctx, args...)
}

func (p ofPrepared) ExecContext(ctx context.Context, _ string, args ...any) (sql.Result, error) {
	return p.Stmt.ExecContext(ctx, args...)
}

// Learn implements sqlstore.Database.
func (d database) Learn(ctx context.Context, again bool) (*sqlstore.Dialect, error) {
	if err := d.learn(ctx, again); err != nil {
		return nil, err // another call may be learning right now
	}
	return d.dialect, nil
}

// LookUp implements sqlstore.Database. A claim that a handler committed early does not count as
// committed.
func (d database) LookUp(ctx context.Context, consumer int64, id []byte) (sqlstore.Row, error) {
	var row inboxRow
	conn, err := d.connection(ctx, d.db)
	if err != nil {
		return row.Row, err
	}
	defer func() { _ = conn.Close() }()
	server, err := d.servers.of(ctx, d.db, conn)
	if err != nil {
		return row.Row, err
	}
	_, err = sqlstore.Send(ctx, conn, sqlstore.Statement{Text: d.dialect.Fixed(lookColumns + `? AND i.message_id = ?`), Args: []any{consumer, id}, Read: row.read})
	row.Found, row.Server = row.Found && row.Status != stores.StatusProcessing, server
	return row.Row, err
}

// Explain implements sqlstore.Database.
func (d database) Explain(ctx context.Context, err error) error {
	d.cannotCall(ctx, err)
	return unavailable(err)
}

// Taken implements sqlstore.Database.
func (database) Taken(err error) bool { return isDuplicate(err) || isContended(err) }

// slack is room for a statement without its large values, in bytes.
const slack = 64 << 10

// maxKept is the largest message that is kept, in bytes, whatever the server accepts.
const maxKept = 256 << 20

// Fits implements sqlstore.Database: a row must fit into one packet.
func (d database) Fits(bytes int) error {
	limit, by := min(maxKept, d.texts().maxPacket-slack), "max_allowed_packet"
	if most := d.texts().maxEntry; most > 0 && limit > most {
		limit, by = most, "tidb_txn_entry_size_limit"
	}
	if bytes > limit {
		return fmt.Errorf("mysql: %w: %d bytes, at most %d can be kept (by %s)", stores.ErrTooLarge, bytes, limit, by)
	}
	return nil
}

// now is microseconds since 1970 UTC by the server's clock.
const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// newDialect returns what differs in the servers' statements.
func newDialect(names sqlstore.Names, k kind) *sqlstore.Dialect {
	free, share, withoutWaitingIfMaria := " FOR UPDATE SKIP LOCKED", " FOR SHARE SKIP LOCKED", ""
	var refused func(error) bool
	switch {
	case k.maria: // on MySQL an earlier statement checked the lock
		share, withoutWaitingIfMaria = " LOCK IN SHARE MODE SKIP LOCKED", withoutWaiting
	case k.tidb:
		free, share, refused = k.nowait(), k.nowait(), isRefused
	}
	return &sqlstore.Dialect{
		Names: names,
		Words: map[string]string{
			"now":   now,
			"state": stateColumns,
			// The end of a failed message locks both rows: a worker that postpones the order key's
			// next message locks only the inbox row.
			"both":       "{schema.}{prefix}failure f STRAIGHT_JOIN {schema.}{prefix}inbox i ON i.consumer = f.consumer AND i.message_id = f.message_id",
			"for update": " FOR UPDATE", "nowait": " FOR UPDATE NOWAIT", "free": free, "share": share,
			"unless locked": withoutWaitingIfMaria,
			"again":         "ON DUPLICATE KEY UPDATE",
			"if free":       "",
			"step again":    "ON DUPLICATE KEY UPDATE at = VALUES(at), result = VALUES(result)",
			"before":        "`before`", "after": "`after`", "until": "`until`",
			"bytes": "CAST(", "/bytes": " AS BINARY)",
			"size": "f.size",
		},
		In: func(column string, values []int64) (string, []any) { return column + " IN " + in(values), nil },
		Pairs: func(columns [2]string, values [][2]int64) (string, []any) {
			b := fmt.Appendf(nil, "(%s, %s) IN (", columns[0], columns[1])
			for i, v := range values {
				if i > 0 {
					b = append(b, ',')
				}
				b = append(b, in(v[:])...)
			}
			return string(append(b, ')')), nil
		},
		OrderKeys: orderKeysIn,

		Refused:  refused,
		Time:     func(t time.Time) any { return t.UnixMicro() },
		Contains: "LOCATE(?, CAST(f.error AS BINARY)) > 0",
		SetStatus: `UPDATE {schema.}{prefix}inbox i JOIN {schema.}{prefix}failure f ON f.consumer = i.consumer AND f.message_id = i.message_id
SET i.status = %s WHERE `,
		LockOrderKey: "SELECT slot FROM {schema.}{prefix}outbox_lock WHERE slot = ? FOR UPDATE", OrderSlots: 1024,
	}
}

// in returns a list of numbers, for IN.
func in(values []int64) string {
	if len(values) == 0 {
		return "(NULL)"
	}
	b := []byte{'('}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = put(b, v)
	}
	return string(append(b, ')'))
}

// orderKeysIn compares hashes, so that thousands of long keys fit into one packet.
func orderKeysIn(keys [][]byte) (condition string, args []any) {
	b := []byte("UNHEX(LEFT(SHA2(CONCAT(o.destination, x'00', o.order_key), 256), 24)) IN (")
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		hash := sha256.Sum256(key)
		b = fmt.Appendf(b, "x'%x'", hash[:12])
	}
	return string(append(b, ')')), nil
}

// Record implements stores.Failures in one short transaction that waits for no lock.
func (s *Store) Record(ctx context.Context, f stores.Failure) (version int64, err error) {
	version, err = s.tables.Record(ctx, f, s.advance)
	if n := number(err); n == tableDenied || n == columnDenied { // messages that do not fail are still handled
		if denied, ok := errors.AsType[*serverError](err); ok {
			err = &serverError{err: denied.err}
		}
	}
	return version, err
}

// Due implements stores.Retries, in one round trip if nothing is due.
func (s *Store) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	return s.tables.ReserveDue(ctx, q, nil)
}

// Change implements stores.Inspector. It skips locked rows, so it never waits for a delivery.
func (s *Store) Change(ctx context.Context, c stores.Change) (stores.Changed, error) {
	return s.tables.Change(ctx, c, nil, s.advance)
}

var _ stores.Purger = (*Store)(nil)

// overtakes is longer than any claim takes: a claim never waits for completed rows.
const overtakes = time.Minute

// Overtaken implements stores.Purger. Not every account may see running transactions, so it waits
// until enough time has passed by the server's clock.
func (s *Store) Overtaken(ctx context.Context, mark string) (next string, over bool, err error) {
	w, err := s.Watermarks(ctx)
	if err != nil {
		return "", false, err
	}
	if mark == "" {
		return strconv.FormatInt(w.Now.UnixMicro(), 10), false, nil
	}
	since, err := strconv.ParseInt(mark, 10, 64)
	if err != nil {
		return "", false, fmt.Errorf("mysql: %q is no mark of Overtaken", mark)
	}
	return mark, w.Now.Sub(time.UnixMicro(since)) >= overtakes, nil
}
