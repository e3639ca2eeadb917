package tables_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

func TestErrorsOfBothDriversAreUnderstood(t *testing.T) {
	t.Parallel()
	for name, coded := range map[string]func(code, severity string) error{
		"pgx": func(code, severity string) error {
			return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, SeverityUnlocalized: severity})
		},
		"pq": func(code, severity string) error { return &pq.Error{Code: pqerror.Code(code), Severity: severity} },
	} {
		for code, want := range map[string]error{
			"42P01": stores.ErrNotMigrated, "3F000": stores.ErrNotMigrated,
			"25006": stores.ErrUnavailable, "40001": stores.ErrUnavailable, "42P05": stores.ErrUnavailable,
			"42501": stores.ErrUnavailable, "42601": nil,
			"23505": nil,
		} {
			err := tables.Unavailable(coded(code, "ERROR"))
			if want != nil && !errors.Is(err, want) || want == nil && errors.Is(err, stores.ErrUnavailable) {
				t.Errorf("%s %s: %v", name, code, err)
			}
		}
		if !tables.Refused(coded("23505", "ERROR")) || tables.Refused(coded("40003", "ERROR")) {
			t.Errorf("%s: what proves that nothing was committed is not known", name)
		}
		if !tables.NotOurs(coded("22012", "ERROR")) || !tables.Expired(coded("25P03", "FATAL")) {
			t.Errorf("%s: an answer of the server is not known", name)
		}
		if !tables.Interruption(coded("40P01", "ERROR")) || tables.Interruption(coded("22012", "ERROR")) {
			t.Errorf("%s: an interruption is not known", name)
		}
		for _, err := range []error{coded("08P01", "FATAL"), coded("08006", "ERROR"), coded("XX000", "FATAL"), coded("XX000", "PANIC")} {
			if !tables.Interruption(err) {
				t.Errorf("%s: %v is counted as the handler's", name, err)
			}
		}
		if tables.Interruption(coded("25P03", "FATAL")) || tables.Interruption(coded("XX000", "ERROR")) {
			t.Errorf("%s: what is the handler's counts as the database's", name)
		}
	}
	if tables.Refused(&pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL"}) {
		t.Error("a lost connection proves nothing")
	}
	for err, want := range map[error]bool{io.EOF: true, driver.ErrBadConn: true, context.Canceled: false, errors.New("no"): false} {
		if tables.Interruption(err) != want {
			t.Errorf("%v: interruption %v", err, !want)
		}
	}
	if tables.IsDrivers(io.EOF) || !tables.IsDrivers(driver.ErrBadConn) {
		t.Error("nobody knows whose error it is")
	}
}
