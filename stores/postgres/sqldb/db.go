package sqldb

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// sqlDB adapts a *sql.DB of any driver for package tables.
type sqlDB struct{ db *sql.DB }

var _ tables.DB = sqlDB{}

// Spare implements tables.DB.
func (d sqlDB) Spare() bool { return d.db.Stats().MaxOpenConnections != 1 }

// Send implements tables.Querier.
func (d sqlDB) Send(ctx context.Context, s tables.Statement) (int64, error) {
	if d.heeds() {
		n, err := send(ctx, d.db, s)
		return n, sqlstore.Exhausted(ctx, d.db, err)
	}
	conn, err := connect(ctx, d.db)
	if err != nil {
		return 0, err
	}
	p := &patient{conn: conn}
	defer p.close()
	return send(ctx, p, s)
}

// heeds reports whether the driver honors contexts in every call.
func (d sqlDB) heeds() bool {
	switch d.db.Driver().(type) {
	case connectorDriver, *stdlib.Driver:
		return true
	}
	return false
}

func send(ctx context.Context, to sqlstore.Conn, s tables.Statement) (int64, error) {
	s.Args = portable(s.Args)
	return sqlstore.Send(ctx, to, s)
}

// portable converts arguments to types that every driver accepts: text for PostgreSQL's own types.
func portable(args []any) []any {
	converted := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case []byte:
			if v != nil { // some drivers send a nil slice as an empty value
				converted[i] = v
			}
		case time.Duration:
			converted[i] = interval(v)
		case *time.Duration:
			if v != nil {
				converted[i] = interval(*v)
			}
		case []int16:
			converted[i] = array(v)
		case []int64:
			converted[i] = array(v)
		case [][]byte:
			converted[i] = byteArray(v)
		default:
			converted[i] = arg
		}
	}
	return converted
}

func interval(d time.Duration) string {
	return strconv.FormatInt(d.Microseconds(), 10) + " microseconds"
}

func array[T int16 | int64](values []T) string {
	literal := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			literal = append(literal, ',')
		}
		literal = strconv.AppendInt(literal, int64(v), 10)
	}
	return string(append(literal, '}'))
}

func byteArray(values [][]byte) string {
	literal := make([]string, len(values))
	for i, v := range values {
		literal[i] = `"\\x` + hex.EncodeToString(v) + `"`
	}
	return "{" + strings.Join(literal, ",") + "}"
}

// Batch implements tables.DB: in one round trip with pgx, statement by statement with others.
func (d sqlDB) Batch(ctx context.Context, statements ...tables.Statement) error {
	if d.heeds() { // pgx's driver
		if sent, err := d.sendBatch(ctx, statements); sent || err != nil {
			return err
		}
	}
	return d.inTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(tx tables.Querier) error {
		for _, s := range statements {
			if _, err := tx.Send(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// sendBatch reports false if pgx's connections are wrapped.
func (d sqlDB) sendBatch(ctx context.Context, statements []tables.Statement) (sent bool, err error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return false, sqlstore.Exhausted(ctx, d.db, err)
	}
	defer func() { _ = conn.Close() }()
	var batchErr error
	err = conn.Raw(func(driverConn any) error {
		native, ok := driverConn.(pgxConn)
		if ok {
			sent, batchErr = true, claimtx.SendBatch(ctx, native.Conn(), statements...)
		}
		return nil
	})
	return sent, errors.Join(err, batchErr)
}

// pgxConn is implemented by the connections of pgx's driver, and by ours.
type pgxConn interface{ Conn() *pgx.Conn }

// InTx implements tables.DB.
func (d sqlDB) InTx(ctx context.Context, f func(tables.Querier) error) error {
	return d.inTx(ctx, nil, f)
}

func (d sqlDB) inTx(ctx context.Context, opts *sql.TxOptions, f func(tables.Querier) error) error {
	conn, tx, err := openTx(ctx, ctx, d.db, opts)
	if err != nil {
		return err
	}
	p := &patient{conn: conn, tx: tx}
	defer p.close()
	if err := f(sqlstore.SenderFunc(func(ctx context.Context, s tables.Statement) (int64, error) { return send(ctx, p, s) })); err != nil {
		return err
	}
	return p.commit(ctx)
}
