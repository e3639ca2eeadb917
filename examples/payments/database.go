package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/examples/internal/earlier"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// prepareDatabase opens the database with all tables in place and nothing in them.
func prepareDatabase(ctx context.Context, path string) (*sqlite.Store, error) {
	if err := earlier.Remove(ctx, path, "payment"); err != nil {
		return nil, fmt.Errorf("--db %s: %w", path, err)
	}
	store, err := sqlite.New(ctx, path, sqlite.Config{AutoMigrate: true})
	if err != nil {
		return nil, err
	}
	if _, err := store.DB().ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}
