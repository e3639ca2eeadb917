package tables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Migrations implements stores.Migrator. Executed in order, each in a transaction,
// their SQL makes the schema that Validate accepts.
func (s Store) Migrations() []stores.Migration { return slices.Clone(s.t.migrations) }

// Migrate implements stores.Migrator: all missing steps in one transaction, under an
// advisory lock.
func (s Store) Migrate(ctx context.Context) ([]stores.Migration, error) {
	if s.t.closed.Load() {
		return nil, stores.ErrClosed
	}
	if err := s.t.recognise(ctx); err != nil {
		return nil, err
	}
	var applied []stores.Migration
	err := s.t.db.InTx(ctx, func(tx Querier) error {
		_, err := tx.Send(ctx, Statement{Text: lockMigrations, Args: []any{s.t.names.Table("schema")}})
		if err != nil {
			return err
		}
		state, err := s.t.schemaState(ctx, tx)
		if err != nil {
			return err
		}
		if state.Version >= len(s.t.migrations) {
			return s.t.check(state)
		}
		for _, m := range s.t.migrations[state.Version:] {
			if _, err := tx.Send(ctx, Statement{Text: m.SQL}); err != nil {
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
	if sqlState(err) == undefinedSchema {
		return nil, fmt.Errorf("postgres: migrate: Config.Schema %q does not exist, create it first: %w", s.t.names.Schema, err)
	}
	return nil, fmt.Errorf("postgres: migrate: %w: %w", stores.ErrUnavailable, err)
}

// Applied implements stores.Migrator.
func (s Store) Applied(ctx context.Context) (int, error) {
	if s.t.closed.Load() {
		return 0, stores.ErrClosed
	}
	if err := s.t.recognise(ctx); err != nil {
		return 0, err
	}
	state, err := s.t.schemaState(ctx, s.t.db)
	if err != nil {
		return 0, unavailable(err)
	}
	return state.Version, nil
}

// Validate implements stores.Migrator.
func (s Store) Validate(ctx context.Context) error {
	if s.t.closed.Load() {
		return stores.ErrClosed
	}
	if err := s.t.recognise(ctx); err != nil {
		return err
	}
	state, err := s.t.schemaState(ctx, s.t.db)
	if err != nil {
		return unavailable(err)
	}
	return s.t.check(state)
}

func (t *Tables) check(state sqlstore.SchemaState) error {
	if err := state.Check(len(t.migrations)); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return nil
}

func (t *Tables) schemaState(ctx context.Context, db Querier) (sqlstore.SchemaState, error) {
	var (
		state  sqlstore.SchemaState
		schema string
		found  bool
	)
	where, args := t.whereIs("schema")
	_, err := db.Send(ctx, Statement{Text: qualify(where), Args: args, Read: first(&found, &schema)})
	if err != nil || !found {
		return state, err
	}
	_, err = db.Send(ctx, Statement{
		Text: expand(t.inSchema(schema), "SELECT version, compatible FROM {schema.}{prefix}schema ORDER BY version DESC LIMIT 1"),
		Read: first(&found, &state.Version, &state.Compatible),
	})
	return state, err
}

var lockMigrations = qualify("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))::text")

// whereIs returns the query for the schema of a table of ours: the configured one, or the
// first of the search_path that has it. Temporary tables, which any name would find first,
// are none of ours.
func (t *Tables) whereIs(table string) (text string, args []any) {
	const tables = `SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1::text AND c.relpersistence <> 't' AND `
	name := t.names.Prefix + table
	if t.names.Schema != "" {
		return tables + "n.nspname = $2::text", []any{name, t.names.Schema}
	}
	return tables + "n.nspname = ANY (current_schemas(false)) ORDER BY array_position(current_schemas(false), n.nspname) LIMIT 1", []any{name}
}

// inSchema are the names of the tables, in full.
func (t *Tables) inSchema(schema string) sqlstore.Names {
	return sqlstore.Names{Schema: pgx.Identifier{schema}.Sanitize(), Prefix: t.names.Prefix}
}

func loadMigrations(names sqlstore.Names) []stores.Migration {
	migrations := sqlstore.LoadMigrations(migrationFiles, "migrations", names)
	for i := range migrations {
		migrations[i].SQL = qualify(migrations[i].SQL)
	}
	return migrations
}
