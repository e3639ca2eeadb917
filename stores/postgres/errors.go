package postgres

import (
	"errors"
	"fmt"

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
)

// unavailable gives an error of the driver or server its meaning for a caller who
// wants to begin something. Nothing that the server says there is about the message.
func unavailable(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case undefinedTable, undefinedColumn, undefinedSchema:
			return fmt.Errorf("postgres: %w: %w", stores.ErrNotMigrated, err)
		}
	}
	return fmt.Errorf("postgres: %w: %w", stores.ErrUnavailable, err)
}
