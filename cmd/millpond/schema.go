package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// States of a store's tables for this program.
const (
	schemaCurrent = "current"
	schemaOlder   = "older" // or missing
	schemaNewer   = "newer" // and not compatible
)

// migrationRecord is a step of this program.
type migrationRecord struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

// stepRecord is a step of migrate up and migrate status.
type stepRecord struct {
	migrationRecord
	Applied bool `json:"applied"` // it is in the database
}

func stepOf(m stores.Migration, applied int) stepRecord {
	return stepRecord{migrationRecord{m.Version, m.Name}, m.Version <= applied}
}

// schema is the state of a store's tables.
type schema struct {
	steps   []stores.Migration // steps of this program
	applied int                // the newest step in the database
	state   string
	err     error // why this program cannot use them
}

func (p *program) schema(ctx context.Context, s store) (schema, error) {
	found := schema{steps: s.Migrations(), state: schemaCurrent}
	err := p.ask(ctx, func(ctx context.Context) (err error) {
		if found.applied, err = s.Applied(ctx); err != nil {
			return err
		}
		found.err = s.Validate(ctx)
		return nil
	})
	switch {
	case err != nil:
		return found, err
	case errors.Is(found.err, stores.ErrNotMigrated):
		found.state = schemaOlder
	case errors.Is(found.err, stores.ErrSchemaNewer):
		found.state = schemaNewer
	case found.err != nil:
		return found, found.err
	}
	return found, nil
}

// broken: no step is missing, but tables are.
func (s schema) broken() bool { return s.state == schemaOlder && s.applied >= len(s.steps) }

// problem returns what must be done before this program can use the tables, or "".
func (s schema) problem() string {
	missing := len(s.steps) - s.applied
	switch {
	case s.state == schemaCurrent:
		return ""
	case s.state == schemaNewer:
		return fmt.Sprintf("the store's tables are at step %d and belong to a newer version of millpond: use that version of this program", s.applied)
	case s.broken():
		return fmt.Sprintf("all steps were applied, but tables were removed since, which migrate up does not repair: %v", s.err)
	case missing == 1:
		return "1 step is missing: run millpond migrate up"
	}
	return fmt.Sprintf("%d steps are missing: run millpond migrate up", missing)
}
