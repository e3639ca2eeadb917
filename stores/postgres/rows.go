package postgres

import (
	"errors"

	"github.com/jackc/pgx/v5"
)

// managedRows count as in use until they are closed or read to the end.
type managedRows struct {
	watchedRows

	closed bool
}

func (r *managedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.done()
	return false
}

// Scan and Values close the rows on an error.

func (r *managedRows) Scan(dest ...any) error {
	err := r.Rows.Scan(r.attempt.watched(dest)...)
	if err != nil {
		r.done()
	}
	return err
}

func (r *managedRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.done()
	}
	return values, err
}

func (r *managedRows) Close() {
	r.Rows.Close()
	r.done()
}

func (r *managedRows) done() {
	if !r.closed {
		r.closed = true
		r.attempt.Release(r.Err())
	}
}

type managedRow struct {
	watchedRow

	scanned bool
}

func (r *managedRow) Scan(dest ...any) error {
	err := r.watchedRow.Scan(dest...)
	if r.scanned {
		return err
	}
	r.scanned = true
	failure := err
	if errors.Is(err, pgx.ErrNoRows) { // not a failure
		failure = nil
	}
	r.attempt.Release(failure)
	return err
}

// managedBatch counts as in use until it is closed.
type managedBatch struct {
	watchedResults

	closed bool
}

func (b *managedBatch) Close() error {
	err := b.BatchResults.Close()
	if !b.closed {
		b.closed = true
		b.attempt.Release(err)
	}
	return err
}

// The driver's own rows are watched only for a handler that takes the connection from them.

type watchedRows struct {
	pgx.Rows

	attempt *attempt
}

func (r watchedRows) Conn() *pgx.Conn {
	if m := r.attempt.member; m != nil {
		return m.tx.Conn()
	}
	if !r.attempt.Bare() {
		return nil
	}
	return r.Rows.Conn()
}

// watched returns dest, wrapping the destinations that receive rows.
func (a *attempt) watched(dest []any) []any {
	if len(dest) != 1 {
		return dest
	}
	scanner, ok := dest[0].(pgx.RowScanner)
	if !ok {
		return dest
	}
	return []any{watchedScanner{scanner, a}}
}

type watchedScanner struct {
	pgx.RowScanner

	attempt *attempt
}

// ScanRow implements pgx.RowScanner.
func (s watchedScanner) ScanRow(rows pgx.Rows) error {
	return s.RowScanner.ScanRow(watchedRows{rows, s.attempt})
}

// watchCallback wraps the rows that a queued query's callback gets.
func (a *attempt) watchCallback(query *pgx.QueuedQuery) {
	if callback := query.Fn; callback != nil {
		query.Fn = func(results pgx.BatchResults) error {
			return callback(watchedResults{results, a})
		}
	}
}

type watchedResults struct {
	pgx.BatchResults

	attempt *attempt
}

func (r watchedResults) Query() (pgx.Rows, error) {
	rows, err := r.BatchResults.Query()
	return watchedRows{rows, r.attempt}, err
}

func (r watchedResults) QueryRow() pgx.Row { return watchedRow{r.BatchResults.QueryRow(), r.attempt} }

type watchedRow struct {
	pgx.Row

	attempt *attempt
}

func (r watchedRow) Scan(dest ...any) error { return r.Row.Scan(r.attempt.watched(dest)...) }
