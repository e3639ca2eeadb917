package sqlite

import (
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s, err := New(t.Context(), path, Config{TablePrefix: "own_"})
	require.NoError(t, err)
	defer s.Close()
	require.ErrorIs(t, s.Validate(t.Context()), stores.ErrNotMigrated)
	require.ErrorIs(t, s.Register(t.Context(), stores.Registration{Consumer: billing}), stores.ErrNotMigrated)

	applied, err := s.Migrate(t.Context())
	require.NoError(t, err)
	require.Equal(t, s.Migrations(), applied)
	require.NoError(t, s.Validate(t.Context()))
	applied, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, applied)

	var tables int
	require.NoError(t, s.DB().QueryRow("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'own\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'").Scan(&tables))
	require.Zero(t, tables, "only tables with the prefix")

	// Another prefix is another store in the same file.
	other := openAt(t, path)
	other.complete(claimOf("a"))
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: billing}))
	opened{s, t}.complete(claimOf("a"))
}

func TestMigrationsAreSQL(t *testing.T) {
	o := open(t)
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "by hand.db"))
	require.NoError(t, err)
	defer db.Close()
	for i, m := range o.Migrations() {
		require.Equal(t, i+1, m.Version)
		require.NotContains(t, m.SQL, "{")
		_, err := db.Exec(m.SQL)
		require.NoError(t, err)
	}
	var path string
	require.NoError(t, db.QueryRow("SELECT file FROM pragma_database_list").Scan(&path))
	s, err := New(t.Context(), path, Config{})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Validate(t.Context()))
	applied, err := s.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, applied)
}

func TestMigrateAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	var wg sync.WaitGroup
	total := make(chan int, 8)
	for range cap(total) {
		wg.Go(func() {
			s, err := New(t.Context(), path, Config{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			applied, err := s.Migrate(t.Context())
			if err != nil {
				t.Error(err)
			}
			if err := s.Validate(t.Context()); err != nil {
				t.Error(err)
			}
			total <- len(applied)
		})
	}
	wg.Wait()
	close(total)
	sum := 0
	for n := range total {
		sum += n
	}
	require.Equal(t, len(open(t).Migrations()), sum, "each step was applied by one")
}

func TestNewerSchema(t *testing.T) {
	o := open(t)
	known := len(o.Migrations())
	newer := func(compatible int) {
		_, err := o.DB().Exec("INSERT OR REPLACE INTO millpond_schema (version, compatible, name) VALUES (?, ?, 'later')", known+1, compatible)
		require.NoError(t, err)
	}
	newer(known)
	require.NoError(t, o.Validate(t.Context()))
	applied, err := o.Migrate(t.Context())
	require.NoError(t, err)
	require.Empty(t, applied)
	require.NoError(t, o.Register(t.Context(), stores.Registration{Consumer: billing}))

	newer(known + 1)
	require.ErrorIs(t, o.Validate(t.Context()), stores.ErrSchemaNewer)
	_, err = o.Migrate(t.Context())
	require.ErrorIs(t, err, stores.ErrSchemaNewer)
	require.ErrorIs(t, o.Register(t.Context(), stores.Registration{Consumer: billing}), stores.ErrSchemaNewer)
	_, err = New(t.Context(), o.path, Config{AutoMigrate: true})
	require.ErrorIs(t, err, stores.ErrSchemaNewer)
}

func TestMissingTables(t *testing.T) {
	for _, table := range []string{"inbox", "consumer", "quarantine", "schema", "failure", "audit"} {
		o := open(t)
		_, err := o.DB().Exec("DROP TABLE millpond_" + table)
		require.NoError(t, err)
		err = o.Validate(t.Context())
		require.ErrorIs(t, err, stores.ErrNotMigrated)
		if table != "schema" {
			require.ErrorContains(t, err, "millpond_"+table)
		}
	}
	o := open(t)
	_, err := o.DB().Exec("DROP TABLE millpond_inbox; DROP TABLE millpond_quarantine")
	require.NoError(t, err)
	_, _, err = o.Begin(t.Context(), claimOf("a"))
	require.ErrorIs(t, err, stores.ErrNotMigrated)
	o = open(t)
	_, err = o.DB().Exec("DROP TABLE millpond_inbox")
	require.NoError(t, err)
	_, err = o.Look(t.Context(), claimOf("a").Key, stores.Fingerprint{})
	require.ErrorIs(t, err, stores.ErrNotMigrated)
	o = open(t)
	_, err = o.DB().Exec("DROP TABLE millpond_inbox; DROP TABLE millpond_quarantine")
	require.NoError(t, err)
	err = o.Quarantine(t.Context(), stores.Quarantined{Consumer: billing, Reason: stores.ReasonNoKey})
	require.ErrorIs(t, err, stores.ErrNotMigrated)
	_, err = o.Resolve(t.Context(), claimOf("a").Key)
	require.ErrorIs(t, err, stores.ErrNotMigrated)
}

// What fails half-way leaves nothing behind.
func TestMigrationIsAtomic(t *testing.T) {
	s, err := New(t.Context(), filepath.Join(t.TempDir(), "a.db"), Config{})
	require.NoError(t, err)
	defer s.Close()
	steps := append(s.Migrations(), stores.Migration{Version: 3, Name: "wrong", SQL: "CREATE TABLE half (x INTEGER); CREATE TABLE half (x INTEGER)"})
	s.tables = sqlstore.New("sqlite", database{s}, steps)
	_, err = s.Migrate(t.Context())
	require.ErrorContains(t, err, "migration 3 (wrong)")
	var tables int
	require.NoError(t, s.DB().QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&tables))
	require.Zero(t, tables)
}
