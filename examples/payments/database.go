package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/millpond-go/millpond/stores/sqlite"
)

// prepareDatabase opens the database with all tables in place and nothing in them.
func prepareDatabase(ctx context.Context, path string) (*sqlite.Store, error) {
	if err := removeDatabase(ctx, path); err != nil {
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

// errForeign keeps the example from deleting what is not its own.
var errForeign = errors.New("it is the database of another program, and stays")

// removeDatabase deletes the database of an earlier run.
func removeDatabase(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() > 0 {
		store, err := sqlite.New(ctx, path, sqlite.Config{})
		if err != nil {
			return err
		}
		var tables, ours int
		err = store.DB().QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE name = 'payment') FROM sqlite_master`).Scan(&tables, &ours)
		if err = errors.Join(err, store.Close()); err != nil {
			return err
		}
		if tables > 0 && ours == 0 {
			return errForeign
		}
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
