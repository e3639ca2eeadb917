package tables

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Migrate implements stores.Migrator: all missing steps in one transaction, under an advisory lock.
// It gives way to transactions that use the tables, because otherwise all others would queue behind
// a pending change of a table.
func (s Store) Migrate(ctx context.Context) (applied []stores.Migration, err error) {
	if s.t.shared.Closed() {
		return nil, stores.ErrClosed
	}
	if err := s.t.recognise(ctx); err != nil {
		return nil, err
	}
	for {
		applied, err = s.migrate(ctx)
		if sqlState(err) != lockNotAvailable || !pause.Sleep(ctx, betweenWaits) {
			break
		}
	}
	switch {
	case err == nil:
		return applied, nil
	case errors.Is(err, stores.ErrSchemaNewer), isPlanted(err):
		return nil, err
	}
	if sqlState(err) == undefinedSchema {
		return nil, fmt.Errorf("postgres: migrate: Config.Schema %q does not exist, create it first: %w", s.t.names.Schema, err)
	}
	return nil, fmt.Errorf("postgres: migrate: %w: %w", stores.ErrUnavailable, err)
}

func (s Store) migrate(ctx context.Context) (applied []stores.Migration, err error) {
	err = s.t.db.InTx(ctx, func(tx Querier) error {
		_, err := tx.Send(ctx, Statement{Text: lockMigrations, Args: []any{s.t.names.Table("schema")}})
		if err != nil {
			return err
		}
		state, err := s.t.schemaState(ctx, tx)
		if err != nil {
			return err
		}
		if applied, err = s.t.shared.Missing(state); err != nil {
			return err
		}
		if _, err := tx.Send(ctx, Statement{Text: waitBriefly}); err != nil {
			return err
		}
		for _, m := range applied {
			if _, err := tx.Send(ctx, Statement{Text: m.SQL}); err != nil {
				return fmt.Errorf("migration %04d_%s: %w", m.Version, m.Name, err)
			}
		}
		return nil
	})
	return applied, err
}

func (t *Tables) schemaState(ctx context.Context, db Querier) (state sqlstore.SchemaState, err error) {
	h, err := t.whereIs(ctx, db)
	if err != nil || h.schema == "" {
		return state, err
	}
	found := false
	_, err = db.Send(ctx, Statement{
		Text: expand(t.inSchema(h.schema), "SELECT coalesce(max(version), 0), coalesce(max(compatible), 0) FROM {schema.}{prefix}schema"),
		Read: first(&found, &state.Version, &state.Compatible),
	})
	return state, err
}

var (
	lockMigrations = qualify("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))::text")
	waitBriefly    = qualify("SELECT set_config('lock_timeout', '500', true)")
)

// betweenWaits is how long others proceed before Migrate tries again.
const betweenWaits = time.Second

func loadMigrations(names sqlstore.Names) []stores.Migration {
	migrations := sqlstore.LoadMigrations(migrationFiles, "migrations", names)
	for i := range migrations {
		migrations[i].SQL = qualify(migrations[i].SQL)
	}
	return migrations
}
