package sqlite

import (
	"context"
	"errors"
	"fmt"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// code returns SQLite's extended result code, or 0 for other errors.
func code(err error) int {
	if err == nil {
		return sqlite3.SQLITE_OK
	}
	if e, ok := errors.AsType[*modernc.Error](err); ok {
		return e.Code()
	}
	return sqlite3.SQLITE_OK
}

// isCode compares primary codes, which are the lowest byte of the extended ones.
func isCode(err error, primary int) bool { return err != nil && code(err)&0xff == primary }

func isUnique(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || c == sqlite3.SQLITE_CONSTRAINT_UNIQUE
}

// refusesValue reports whether SQLite refused a value, and would refuse it every time. A CHECK does
// not count, because rows of other messages may decide it.
func refusesValue(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_CONSTRAINT_NOTNULL, sqlite3.SQLITE_CONSTRAINT_DATATYPE,
		sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG:
		return true
	}
	return false
}

// Refuses implements stores.Refusing.
func (*attempt) Refuses(err error) bool { return refusesValue(err) }

// unavailable wraps an error that says nothing about a key in stores.ErrUnavailable. It returns
// other errors, such as bad SQL, unchanged.
func unavailable(err error) error {
	if errors.Is(err, stores.ErrUnavailable) {
		return err
	}
	switch code(err) & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
		sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", stores.ErrUnavailable, err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", stores.ErrUnavailable, err)
	}
	return err
}

const pkg sqltx.Package = "sqlite"
