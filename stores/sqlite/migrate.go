package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Migrations implements stores.Migrator.
func (s *Store) Migrations() []stores.Migration { return slices.Clone(s.migrations) }

// Migrate implements stores.Migrator. All missing steps are applied in one transaction,
// or none. It waits for other processes until ctx ends.
func (s *Store) Migrate(ctx context.Context) ([]stores.Migration, error) {
	// A database that is up to date needs no writer, and may be read-only.
	missing, err := s.missing(ctx, s.reader)
	if err == nil && len(missing) > 0 {
		err = s.writer.write(ctx, time.Time{}, func(tx *sql.Tx) error {
			if missing, err = s.missing(ctx, tx); err != nil { // another process may have been faster
				return err
			}
			for _, m := range missing {
				if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
					return fmt.Errorf("migration %d (%s): %w", m.Version, m.Name, err)
				}
			}
			return nil
		})
	}
	if err != nil {
		return nil, s.failed("migrate", err)
	}
	return missing, nil
}

// missing returns the steps to apply.
func (s *Store) missing(ctx context.Context, q sqlstore.Querier) ([]stores.Migration, error) {
	state, _, err := s.schema(ctx, q)
	if err != nil {
		return nil, err
	}
	if state.Version >= len(s.migrations) {
		return nil, state.Check(len(s.migrations))
	}
	return slices.Clone(s.migrations[state.Version:]), nil
}

// Applied implements stores.Migrator.
func (s *Store) Applied(ctx context.Context) (int, error) {
	state, _, err := s.schema(ctx, s.reader)
	if err != nil {
		return 0, s.failed("applied", err)
	}
	return state.Version, nil
}

// Validate implements stores.Migrator.
func (s *Store) Validate(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return s.failed("validate", err)
	}
	return nil
}

// check reads the schema's version and whether its tables are there.
func (s *Store) check(ctx context.Context) error {
	state, absent, err := s.schema(ctx, s.reader)
	if err != nil {
		return err
	}
	if err := state.Check(len(s.migrations)); err != nil {
		return err
	}
	if len(absent) > 0 {
		return fmt.Errorf("%w (version %d is recorded, but there is no %s)", stores.ErrNotMigrated, state.Version, strings.Join(absent, ", "))
	}
	return nil
}

// schema returns what the schema table says, and which of the tables do not exist.
func (s *Store) schema(ctx context.Context, q sqlstore.Querier) (state sqlstore.SchemaState, absent []string, err error) {
	prefix := s.names.Prefix
	absent = []string{prefix + "schema", prefix + "consumer", prefix + "inbox", prefix + "quarantine", prefix + "failure", prefix + "audit"}
	rows, err := q.QueryContext(ctx, s.sql.tables, absent[0], absent[1], absent[2], absent[3], absent[4], absent[5])
	if err != nil {
		return state, nil, err
	}
	defer rows.Close()
	versioned := false
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return state, nil, err
		}
		versioned = versioned || table == prefix+"schema"
		absent = slices.DeleteFunc(absent, func(name string) bool { return name == table })
	}
	if err := rows.Err(); err != nil {
		return state, nil, err
	}
	if versioned {
		err = q.QueryRowContext(ctx, s.sql.version).Scan(&state.Version, &state.Compatible)
	}
	return state, absent, err
}

// failed gives an error its place and one of the contract's sentinels.
func (s *Store) failed(what string, err error) error {
	return fmt.Errorf("sqlite: %s: %w", what, s.known(err))
}

// known is explain for callers that have looked at the schema.
func (s *Store) known(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return stores.ErrClosed
	}
	return unavailable(err)
}
