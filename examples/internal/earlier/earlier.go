// Package earlier removes what an earlier run of an example has left.
package earlier

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/millpond-go/millpond/stores/sqlite"
)

// ErrForeign keeps an example from deleting what is not its own.
var ErrForeign = errors.New("it is the database of another program: it stays as it is")

// Remove deletes an SQLite database, if it is there. One that holds tables, and not the
// example's own, stays: the error is ErrForeign.
func Remove(ctx context.Context, path, table string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() > 0 {
		if err := isOwn(ctx, path, table); err != nil {
			return err
		}
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func isOwn(ctx context.Context, path, table string) error {
	store, err := sqlite.New(ctx, path, sqlite.Config{})
	if err != nil {
		return err
	}
	var tables, own int
	err = store.DB().QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE name = ?) FROM sqlite_master`, table).Scan(&tables, &own)
	if err = errors.Join(err, store.Close()); err == nil && tables > 0 && own == 0 {
		err = ErrForeign
	}
	return err
}
