package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Migrations implements stores.Migrator. Executed in order, each in a transaction,
// their SQL makes the schema that Validate accepts.
func (s *Store) Migrations() []stores.Migration { return slices.Clone(s.migrations) }

// Migrate implements stores.Migrator: all missing steps in one transaction, under an
// advisory lock.
func (s *Store) Migrate(ctx context.Context) ([]stores.Migration, error) {
	if s.closed.Load() {
		return nil, stores.ErrClosed
	}
	var applied []stores.Migration
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", s.names.Table("schema")); err != nil {
			return err
		}
		state, err := s.schemaState(ctx, tx)
		if err != nil {
			return err
		}
		if state.Version >= len(s.migrations) {
			return s.check(state)
		}
		for _, m := range s.migrations[state.Version:] {
			if _, err := tx.Exec(ctx, m.SQL); err != nil {
				return fmt.Errorf("migration %04d_%s: %w", m.Version, m.Name, err)
			}
			applied = append(applied, m)
		}
		return nil
	})
	switch {
	case err == nil:
		return applied, nil
	case errors.Is(err, stores.ErrSchemaNewer):
		return nil, err
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == undefinedSchema {
		return nil, fmt.Errorf("postgres: migrate: Config.Schema %q does not exist, create it first: %w", s.names.Schema, err)
	}
	return nil, fmt.Errorf("postgres: migrate: %w: %w", stores.ErrUnavailable, err)
}

// Applied implements stores.Migrator.
func (s *Store) Applied(ctx context.Context) (int, error) {
	if s.closed.Load() {
		return 0, stores.ErrClosed
	}
	state, err := s.schemaState(ctx, s.pool)
	if err != nil {
		return 0, unavailable(err)
	}
	return state.Version, nil
}

// Validate implements stores.Migrator.
func (s *Store) Validate(ctx context.Context) error {
	if s.closed.Load() {
		return stores.ErrClosed
	}
	state, err := s.schemaState(ctx, s.pool)
	if err != nil {
		return unavailable(err)
	}
	return s.check(state)
}

func (s *Store) check(state sqlstore.SchemaState) error {
	if err := state.Check(len(s.migrations)); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

// queryer is the part of a pool and of a transaction that reading needs.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (s *Store) schemaState(ctx context.Context, db queryer) (sqlstore.SchemaState, error) {
	var (
		state  sqlstore.SchemaState
		exists bool
	)
	err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.names.Table("schema")).Scan(&exists)
	if err != nil || !exists {
		return state, err
	}
	err = db.QueryRow(ctx, s.names.Expand(
		"SELECT version, compatible FROM {schema.}{prefix}schema ORDER BY version DESC LIMIT 1",
	)).Scan(&state.Version, &state.Compatible)
	if errors.Is(err, pgx.ErrNoRows) {
		return state, nil
	}
	return state, err
}
