package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

// Migrations implements stores.Migrator. Executed in order, their SQL makes the schema that
// Validate accepts. One step may have several statements.
func (s Store) Migrations() []stores.Migration { return slices.Clone(s.t.migrations) }

// Applied implements stores.Migrator.
func (s Store) Applied(ctx context.Context) (int, error) {
	state, err := s.t.state(ctx)
	return state.Version, err
}

// Validate implements stores.Migrator.
func (s Store) Validate(ctx context.Context) error {
	state, err := s.t.state(ctx)
	if err != nil {
		return err
	}
	if err := s.t.Check(state); err != nil {
		return err
	}
	return s.t.learn(ctx, false)
}

func (t *Tables) state(ctx context.Context) (SchemaState, error) {
	if t.closed.Load() {
		return SchemaState{}, stores.ErrClosed
	}
	state, err := t.db.SchemaState(ctx)
	if err != nil {
		return SchemaState{}, t.Explain(ctx, err)
	}
	return state, nil
}

// Check returns nil if this program can use the tables.
func (t *Tables) Check(state SchemaState) error {
	if err := state.Check(len(t.migrations)); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	return nil
}

// Missing returns the steps that are not applied.
func (t *Tables) Missing(state SchemaState) ([]stores.Migration, error) {
	if state.Version >= len(t.migrations) {
		return nil, t.Check(state)
	}
	return slices.Clone(t.migrations[state.Version:]), nil
}
