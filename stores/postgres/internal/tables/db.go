package tables

import "context"

// Rows are the rows of a query, as all drivers have them.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// Statement is SQL text with its arguments.
type Statement struct {
	Text string
	Args []any
	Read func(Rows) error // is handed the rows; nil: none are expected
}

// Querier sends one statement at a time, and returns how many rows it has affected.
// Errors are the driver's.
type Querier interface {
	Send(ctx context.Context, s Statement) (affected int64, err error)
}

// DB is a driver with its connections. Arguments are strings, booleans, integers, bytes,
// slices of integers, durations, times, and nil; results are taken as integers,
// booleans, strings and bytes, so that nothing depends on how a session writes
// its times.
type DB interface {
	Querier // each statement in a transaction of its own

	// Batch sends statements in one transaction, READ COMMITTED, and commits it. It takes
	// one trip where the driver is able to.
	Batch(ctx context.Context, statements ...Statement) error

	// InTx runs f in a transaction, and commits it if f returns nil.
	InTx(ctx context.Context, f func(Querier) error) error
}

// first is what to do with at most one row: found says whether there was one.
func first(found *bool, dest ...any) func(Rows) error {
	return func(rows Rows) error {
		if rows.Next() {
			*found = true
			if err := rows.Scan(dest...); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}
