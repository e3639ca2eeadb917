package tables

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/stores"
)

// Error codes of the server, from its manual's appendix A.
const (
	undefinedTable    = "42P01"
	undefinedColumn   = "42703"
	undefinedSchema   = "3F000"
	uniqueViolation   = "23505"
	completionUnknown = "40003"
	divisionByZero    = "22012"
	outOfRange        = "22003"
	dataException     = "22" // a class
	notNullViolation  = "23502"
	idleInTransaction = "25P03"
	noRight           = "42501"
	undefinedFunction = "42883"
	syntaxError       = "42601"
	notSupported      = "0A000"

	statementExists  = "42P05" // of a prepared statement
	statementMissing = "26000"

	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	adminShutdown        = "57P01"
	crashShutdown        = "57P02"
	cannotConnectNow     = "57P03"
	databaseDropped      = "57P04"
	idleSession          = "57P05"
	lockNotAvailable     = "55P03"
	readOnly             = "25006"
	outOfResources       = "53" // a class
	connectionException  = "08" // a class; poolers report a lost server with it
)

// errPooler names the usual reason why prepared statements are missing, or exist without having
// been prepared.
var errPooler = errors.New("a pooler in transaction mode seems to be in between, which keeps no prepared statements: " +
	"add pgbouncer=transaction to the URL, or set another DefaultQueryExecMode where the connections are made")

// sqlState returns the server's error code, or "". All drivers expose it in the same way.
func sqlState(err error) string {
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return coded.SQLState()
	}
	return ""
}

// IsDrivers reports whether an error is the server's, or database/sql's about a connection.
func IsDrivers(err error) bool { return sqlState(err) != "" || errors.Is(err, driver.ErrBadConn) }

// NotOurs reports whether a statement failed because its transaction had not written the claim's
// row (see Tables.Owned).
func NotOurs(err error) bool { return sqlState(err) == divisionByZero }

// NotPrepared reports whether a prepared statement no longer exists.
func NotPrepared(err error) bool { return sqlState(err) == statementMissing }

// Refused reports whether the error that answered COMMIT proves that nothing was committed.
func Refused(err error) bool {
	state := sqlState(err)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.SeverityUnlocalized != "ERROR" {
		return false
	}
	return state != "" && state != completionUnknown
}

// Contended reports whether a claim failed because of concurrent transactions. Under a strict
// isolation this concerns one message, and says nothing about the server.
func Contended(err error) bool {
	state := sqlState(err)
	return state == serializationFailure || state == deadlockDetected
}

// Expired reports whether the server ended an idle transaction.
func Expired(err error) bool { return sqlState(err) == idleInTransaction }

// ends reports whether an error of the server, or of a pooler, ends the connection. A statement's
// own error does not.
func ends(err error) bool {
	severity := ""
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		severity = pgErr.SeverityUnlocalized
		if severity == "" { // PgBouncer sends only the other field
			severity = pgErr.Severity
		}
	} else if other, ok := errors.AsType[fielded](err); ok {
		severity = other.Get('S')
	}
	return severity == "FATAL" || severity == "PANIC"
}

// fielded is implemented by lib/pq's errors.
type fielded interface {
	error
	Get(field byte) string
}

// Interruption reports whether a statement failed only because of the database. A context that ends
// is the handler's own affair.
func Interruption(err error) bool {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	if state := sqlState(err); state != "" {
		if state != idleInTransaction && ends(err) {
			return true
		}
		switch state {
		case serializationFailure, deadlockDetected, lockNotAvailable, completionUnknown, readOnly,
			adminShutdown, crashShutdown, cannotConnectNow, databaseDropped, idleSession:
			return true
		}
		return strings.HasPrefix(state, outOfResources) || strings.HasPrefix(state, connectionException)
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, driver.ErrBadConn)
}

// InterruptsAttempt is Interruption for statements after a claim. Their transaction has already
// written, so if it is read-only now, the handler made it so.
func InterruptsAttempt(err error) bool { return Interruption(err) && sqlState(err) != readOnly }

// RefusesValue reports whether the server refused a value, and would refuse it every time. It
// leaves out errors that rows of other messages may cause: a result out of range, a division by
// zero, and CHECK constraints.
func RefusesValue(err error) bool {
	switch state := sqlState(err); state {
	case notNullViolation:
		return true
	case divisionByZero, outOfRange:
		return false
	default:
		return strings.HasPrefix(state, dataException)
	}
}

// Explain interprets a driver's error for a caller that begins something, once the tables are
// known.
func (t *Tables) Explain(err error) error { return t.shared.Explain(context.Background(), err) }

// Unavailable interprets an error of the driver or server for a caller that begins something. No
// such error is about the message.
func Unavailable(err error) error {
	if isPlanted(err) {
		return err
	}
	if state := sqlState(err); state != "" {
		switch state {
		case undefinedTable, undefinedColumn, undefinedSchema:
			return fmt.Errorf("postgres: %w: %w", stores.ErrNotMigrated, err)
		case noRight: // on a table of millpond's: no message can be handled until it is granted
			return fmt.Errorf("postgres: %w: %w: grant the rights that `millpond roles` prints", stores.ErrUnavailable, err)
		case statementExists, statementMissing:
			return fmt.Errorf("postgres: %w: %w: %w", stores.ErrUnavailable, errPooler, err)
		}
		switch state[:min(2, len(state))] {
		case "22", "23", "42", "54": // data, constraints, mistakes, limits: neither the server's state nor a problem of all messages
			return fmt.Errorf("postgres: %w", err)
		}
	}
	return fmt.Errorf("postgres: %w: %w", stores.ErrUnavailable, err)
}
