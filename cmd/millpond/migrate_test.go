package main

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// emptyDatabases are what migrate begins with, with a way to run SQL on them.
func emptyDatabases(t *testing.T, test func(t *testing.T, n *session, db *sql.DB)) {
	for driver, address := range map[string]func(*testing.T) (url, source string){
		"sqlite": func(t *testing.T) (string, string) {
			path := filepath.Join(t.TempDir(), "test.db")
			return "sqlite://" + filepath.ToSlash(path), "file:" + path
		},
		"pgx": func(t *testing.T) (string, string) {
			url := postgresURL(t)
			return url, url
		},
	} {
		t.Run(driver, func(t *testing.T) {
			url, source := address(t)
			n := newSession(t)
			n.vars[storeVariable] = url
			db, err := sql.Open(driver, source)
			require.NoError(t, err)
			defer db.Close()
			require.NoError(t, db.PingContext(t.Context()))
			_, err = db.ExecContext(t.Context(), "CREATE TABLE theirs (id INTEGER)") // so that there is a file
			require.NoError(t, err)
			test(t, n, db)
		})
	}
}

func TestMigrate(t *testing.T) {
	emptyDatabases(t, func(t *testing.T, n *session, _ *sql.DB) {
		require.Equal(t, "older", n.object(exitError, "migrate", "status")["state"])
		for _, args := range [][]string{{"stats"}, {"msg", "ls"}, {"group", "ls"}, {"quarantine", "ls"}, {"audit", "ls"}, {"msg", "retry", "--all", "--yes"}} {
			n.run(exitError, args...)
			require.Contains(t, n.errB.String(), "run millpond migrate up", args)
			require.Equal(t, 1, strings.Count(n.errB.String(), "\n"), "one sentence")
		}
		require.Contains(t, n.ok("migrate", "up", "--dry-run"), "0002_failures")
		n.run(exitError, "migrate", "status")

		require.Regexp(t, `0001_inbox +applied\n0002_failures +applied`, n.ok("migrate", "up"))
		require.Empty(t, n.ok("migrate", "up"))
		require.Contains(t, n.errB.String(), "up to date")
		require.Empty(t, n.ok("migrate", "up", "--dry-run"))
		require.Equal(t, "current", n.object(exitOK, "migrate", "status")["state"])
		require.Contains(t, n.ok("migrate", "status"), "up to date")
		n.ok("stats")
	})
}

func TestNewerSchema(t *testing.T) {
	emptyDatabases(t, func(t *testing.T, n *session, db *sql.DB) {
		n.ok("migrate", "up")
		_, err := db.ExecContext(t.Context(), "INSERT INTO millpond_schema (version, compatible, name) VALUES (99, 98, 'later')")
		require.NoError(t, err)
		for _, args := range [][]string{
			{"stats"},
			{"msg", "ls"},
			{"msg", "show", "1"},
			{"group", "ls"},
			{"quarantine", "ls"},
			{"audit", "ls"},
			{"msg", "retry", "--all", "--yes"},
			{"quarantine", "release", "1"},
			{"migrate", "up"},
		} {
			n.run(exitError, args...)
			require.Contains(t, n.errB.String(), "belong to a newer version of millpond", args)
			require.Equal(t, 1, strings.Count(n.errB.String(), "\n"), "one sentence")
		}
		require.Equal(t, "newer", n.object(exitError, "migrate", "status")["state"])
	})
}

// What migrate sql prints makes the tables.
func TestMigrateSQL(t *testing.T) {
	emptyDatabases(t, func(t *testing.T, n *session, db *sql.DB) {
		for _, step := range n.objects("migrate", "sql") {
			_, err := db.ExecContext(t.Context(), step["sql"].(string))
			require.NoError(t, err)
		}
		require.Equal(t, "current", n.object(exitOK, "migrate", "status")["state"])
		second := n.ok("migrate", "sql", "--from", "2")
		require.Contains(t, second, "-- 0002_failures\n")
		require.NotContains(t, second, "0001")
		n.run(exitNothing, "migrate", "sql", "--from", "99")
	})
}
