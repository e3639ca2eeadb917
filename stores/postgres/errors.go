package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/stores"
)

// unavailable gives an error of the driver or server its meaning for a caller who
// wants to begin something. Nothing that the server says there is about the message.
func unavailable(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case "42P01", "42703", "3F000": // undefined table, undefined column, undefined schema
			return fmt.Errorf("postgres: %w: %w", stores.ErrNotMigrated, err)
		}
	}
	return fmt.Errorf("postgres: %w: %w", stores.ErrUnavailable, err)
}
