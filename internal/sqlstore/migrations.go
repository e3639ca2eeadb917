package sqlstore

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// LoadMigrations reads files named like 0001_inbox.sql from dir. Versions must be 1, 2, 3, …
// without gaps. Anything else is a bug in the program, so it panics.
func LoadMigrations(files fs.FS, dir string, names Names) []stores.Migration {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		panic(fmt.Sprintf("sqlstore: migrations: %v", err))
	}
	var migrations []stores.Migration
	for _, entry := range entries {
		version, name, ok := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		number, err := strconv.Atoi(version)
		if !ok || err != nil {
			panic(fmt.Sprintf("sqlstore: migration file %q is not named like 0001_name.sql", entry.Name()))
		}
		text, err := fs.ReadFile(files, path.Join(dir, entry.Name()))
		if err != nil {
			panic(fmt.Sprintf("sqlstore: migrations: %v", err))
		}
		migrations = append(migrations, stores.Migration{Version: number, Name: name, SQL: names.Expand(string(text))})
	}
	slices.SortFunc(migrations, func(a, b stores.Migration) int { return cmp.Compare(a.Version, b.Version) })
	for i, m := range migrations {
		if m.Version != i+1 {
			panic(fmt.Sprintf("sqlstore: migration %d is missing", i+1))
		}
	}
	return migrations
}

// SchemaState is the content of a database's schema table.
type SchemaState struct {
	Version    int      // the newest applied step; 0: none, or no schema table
	Compatible int      // the oldest program version that can use it
	Absent     []string // missing tables of the newest step, if the database tells
}

// Check returns nil if a program that knows the steps up to known can use a schema. Programs in a
// rolling deployment are one step apart, so a newer schema is usable if it says so.
func (s SchemaState) Check(known int) error {
	switch {
	case s.Version < known:
		return fmt.Errorf("%w (schema version %d, this program needs %d)", stores.ErrNotMigrated, s.Version, known)
	case s.Compatible > known:
		return fmt.Errorf("%w (schema version %d needs a program that knows %d or later, this one knows %d)",
			stores.ErrSchemaNewer, s.Version, s.Compatible, known)
	case len(s.Absent) > 0:
		return fmt.Errorf("%w (version %d is recorded, but there is no %s)", stores.ErrNotMigrated, s.Version, strings.Join(s.Absent, ", "))
	}
	return nil
}
