package tables

import (
	"context"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// Shared by all SQL stores.
type (
	// Rows are the rows of a query, for all drivers.
	Rows = sqlstore.Rows
	// Statement is SQL text with its arguments.
	Statement = sqlstore.Statement
	// Querier sends one statement at a time. Errors are the driver's.
	Querier = sqlstore.Sender
)

// DB is a driver with its connections. Arguments are strings, booleans, integers, bytes, slices of
// integers or bytes, durations, times, and nil. Results are read as integers, booleans, strings and bytes,
// so that nothing depends on a session's format of times.
type DB interface {
	Querier // each statement in its own transaction

	// Batch sends statements in one transaction, READ COMMITTED, and commits it, in one round trip
	// if the driver can.
	Batch(ctx context.Context, statements ...Statement) error

	// Spare reports whether there may be more than one connection.
	Spare() bool

	// InTx runs f in a transaction, and commits it if f returns nil.
	InTx(ctx context.Context, f func(Querier) error) error
}

func first(found *bool, dest ...any) func(Rows) error { return sqlstore.ReadFirst(found, dest...) }
