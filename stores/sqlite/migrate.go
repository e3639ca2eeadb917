package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Migrate implements stores.Migrator. It applies all missing steps in one transaction, or none. It
// waits for other processes until ctx ends.
func (s *Store) Migrate(ctx context.Context) ([]stores.Migration, error) {
	// An up-to-date database needs no writer, and may be read-only.
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
	switch {
	case err == nil:
		return missing, nil
	case s.tables.Closed():
		return nil, stores.ErrClosed
	}
	return nil, fmt.Errorf("sqlite: migrate: %w", unavailable(err))
}

// missing returns the steps to apply.
func (s *Store) missing(ctx context.Context, q querier) ([]stores.Migration, error) {
	state, _, err := s.schema(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.tables.Missing(state)
}

// SchemaState implements sqlstore.Database.
func (d database) SchemaState(ctx context.Context) (sqlstore.SchemaState, error) {
	state, absent, err := d.schema(ctx, d.reader)
	switch {
	case err != nil && d.tables.Closed():
		return state, stores.ErrClosed
	case err != nil:
		return state, unavailable(err)
	}
	if state.Version >= len(d.Migrations()) {
		state.Absent = absent
	}
	return state, nil
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var tableNames = []string{"schema", "consumer", "inbox", "quarantine", "failure", "audit", "outbox", "outbox_history", "outbox_failed", "lease", "process", "once"}

// schema returns the content of the schema table, and the tables that do not exist.
func (s *Store) schema(ctx context.Context, q querier) (state sqlstore.SchemaState, absent []string, err error) {
	var args []any
	for _, name := range tableNames {
		absent = append(absent, s.dialect.Names.Prefix+name)
		args = append(args, s.dialect.Names.Prefix+name)
	}
	versions := absent[0]
	rows, err := q.QueryContext(ctx, `SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
	if err != nil {
		return state, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return state, nil, err
		}
		absent = slices.DeleteFunc(absent, func(name string) bool { return name == table })
	}
	if err := errors.Join(rows.Close(), rows.Err()); err != nil {
		return state, nil, err
	}
	if !slices.Contains(absent, versions) {
		err = q.QueryRowContext(ctx, s.dialect.Fixed(`SELECT coalesce(max(version), 0), coalesce(max(compatible), 0) FROM {schema.}{prefix}schema`)).
			Scan(&state.Version, &state.Compatible)
	}
	return state, absent, err
}
