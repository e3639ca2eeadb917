package stores

import "context"

// Migration is one step of a store's own schema.
type Migration struct {
	Version int    // 1, 2, 3, … without gaps
	Name    string // what it does, as in its file name
	SQL     string // the statements, for the configured names
}

// Migrator creates and checks millpond's tables. Their version is in a table of their own, never
// in the user's.
type Migrator interface {
	// Migrations returns all steps in order, as SQL to read or to give to your own migration
	// tool.
	Migrations() []Migration

	// Migrate applies the missing steps and returns them. It may run in many processes at once:
	// one applies, the others wait. It never changes or drops objects that are not its own.
	// Errors wrap ErrSchemaNewer or ErrUnavailable.
	Migrate(ctx context.Context) ([]Migration, error)

	// Applied returns the newest step in the database: 0 if there is none. This program may not
	// know it. Errors wrap ErrUnavailable or ErrClosed.
	Applied(ctx context.Context) (version int, err error)

	// Validate returns nil if this program can use the tables as they are,
	// otherwise an error wrapping ErrNotMigrated, ErrSchemaNewer or ErrUnavailable.
	Validate(ctx context.Context) error
}
