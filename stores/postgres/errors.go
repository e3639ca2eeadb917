package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/stores"
)

// Error codes of the server, from its manual's appendix A.
const (
	undefinedTable    = "42P01"
	undefinedColumn   = "42703"
	undefinedSchema   = "3F000"
	divisionByZero    = "22012"
	completionUnknown = "40003"
	uniqueViolation   = "23505"
	idleInTransaction = "25P03"

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
)

// interruption reports whether a statement failed for a reason that lies with the
// database alone. A context that ended is the handler's own affair.
func interruption(err error) bool {
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return false
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case serializationFailure, deadlockDetected, lockNotAvailable, completionUnknown, readOnly,
			adminShutdown, crashShutdown, cannotConnectNow, databaseDropped, idleSession:
			return true
		}
		return strings.HasPrefix(pgErr.Code, outOfResources)
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, pgconn.ErrConnClosed)
}

// unavailable gives an error of the driver or server its meaning for a caller who
// wants to begin something. Nothing that the server says there is about the message.
func unavailable(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case undefinedTable, undefinedColumn, undefinedSchema:
			return fmt.Errorf("postgres: %w: %w", stores.ErrNotMigrated, err)
		}
		switch pgErr.Code[:min(2, len(pgErr.Code))] {
		case "22", "23", "42", "54": // data, constraints, rights, limits: not the server's state, and not everybody's
			return fmt.Errorf("postgres: %w", err)
		}
	}
	return fmt.Errorf("postgres: %w: %w", stores.ErrUnavailable, err)
}

// connectError says once why a server cannot be reached. The driver says it for each
// address, and again for each kind of encryption that it has tried.
type connectError struct {
	host string
	err  error
}

func (e *connectError) Error() string {
	cause := e.err
	if c, ok := errors.AsType[*pgconn.ConnectError](cause); ok {
		cause = cmp.Or(c.Unwrap(), cause)
	}
	var reasons []string
	for line := range strings.Lines(cause.Error()) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(reasons, line) {
			reasons = append(reasons, line)
		}
	}
	return fmt.Sprintf("postgres: cannot connect to %s: %s", e.host, strings.Join(reasons, "; "))
}

func (e *connectError) Unwrap() error { return unavailable(e.err) }

// unavailable is the same for calls that know the consumer: new tables would give its
// id to another.
func (s *Store) unavailable(err error) error {
	err = unavailable(err)
	if errors.Is(err, stores.ErrNotMigrated) {
		s.forget()
	}
	return err
}
