package sqlstore

import (
	"context"
	"database/sql"
	"time"
)

// Querier is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Scan reads the columns of one row.
type Scan = func(into ...any) error

// Each runs a query and calls f for every row. The rows are closed when it returns.
func Each(ctx context.Context, q Querier, query string, args []any, f func(Scan) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// List returns what f makes of every row of a query.
func List[T any](ctx context.Context, q Querier, query string, args []any, f func(Scan) (T, error)) ([]T, error) {
	var all []T
	err := Each(ctx, q, query, args, func(scan Scan) error {
		one, err := f(scan)
		all = append(all, one)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Instant is the time of a column in microseconds; NULL is the zero time.
func Instant(micros *int64) time.Time {
	if micros == nil {
		return time.Time{}
	}
	return time.UnixMicro(*micros)
}
