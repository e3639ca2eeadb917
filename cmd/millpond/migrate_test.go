package main

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		for _, args := range [][]string{{"stats"}, {"msg", "ls"}, {"cause", "ls"}, {"quarantine", "ls"}, {"audit", "ls"}, {"msg", "retry", "--all", "--yes"}} {
			n.run(exitError, args...)
			require.Contains(t, n.errB.String(), "run millpond migrate up", args)
			require.Equal(t, 1, strings.Count(n.errB.String(), "\n"), "one sentence")
		}
		require.Regexp(t, `0001_inbox +would be applied\n0002_failures +would be applied\n0003_outbox +would be applied\n0004_leases +would be applied\n0005_retention +would be applied\n0006_copies +would be applied\n$`, n.ok("migrate", "up", "--dry-run"))
		require.Equal(t, "0001 inbox      MISSING\n0002 failures   MISSING\n0003 outbox     MISSING\n0004 leases     MISSING\n0005 retention  MISSING\n0006 copies     MISSING\n", n.run(exitError, "migrate", "status"))
		require.Equal(t, "millpond: 6 steps are missing: run millpond migrate up\n", n.errB.String())

		require.Regexp(t, `0001_inbox +applied\n0002_failures +applied\n0003_outbox +applied\n0004_leases +applied\n0005_retention +applied\n0006_copies +applied`, n.ok("migrate", "up"))
		require.Empty(t, n.ok("migrate", "up"))
		require.Contains(t, n.errB.String(), "up to date")
		require.Regexp(t, `0001_inbox +already applied\n0002_failures +already applied\n0003_outbox +already applied\n0004_leases +already applied\n0005_retention +already applied\n0006_copies +already applied\n$`, n.ok("migrate", "up", "--dry-run"))
		require.Contains(t, n.errB.String(), "nothing to do")
		require.Equal(t, "current", n.object(exitOK, "migrate", "status")["state"])
		require.Equal(t, "0001 inbox      applied\n0002 failures   applied\n0003 outbox     applied\n0004 leases     applied\n0005 retention  applied\n0006 copies     applied\nthe tables are up to date\n", n.ok("migrate", "status"))
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
			{"cause", "ls"},
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
		require.Contains(t, n.run(exitError, "migrate", "status"), "0006 copies     applied\nand 93 that this program does not know\n")
		require.Contains(t, n.errB.String(), "belong to a newer version of millpond")
	})
}

// A database of the version before.
func TestOneStepIsMissing(t *testing.T) {
	emptyDatabases(t, func(t *testing.T, n *session, db *sql.DB) {
		steps := n.objects("migrate", "sql")
		for _, step := range steps[:len(steps)-1] {
			text, _ := step["sql"].(string)
			_, err := db.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		require.Contains(t, n.run(exitError, "migrate", "status"), "0005 retention  applied\n0006 copies     MISSING\n")
		require.Equal(t, "millpond: 1 step is missing: run millpond migrate up\n", n.errB.String())
		status := n.object(exitError, "migrate", "status")
		require.Equal(t, "older", status["state"])
		require.EqualValues(t, 5, status["version"])
		require.Equal(t, []any{
			map[string]any{"version": 1.0, "name": "inbox", "applied": true},
			map[string]any{"version": 2.0, "name": "failures", "applied": true},
			map[string]any{"version": 3.0, "name": "outbox", "applied": true},
			map[string]any{"version": 4.0, "name": "leases", "applied": true},
			map[string]any{"version": 5.0, "name": "retention", "applied": true},
			map[string]any{"version": 6.0, "name": "copies", "applied": false},
		}, status["steps"])
		require.Regexp(t, `0005_retention +already applied\n0006_copies +would be applied\n$`, n.ok("migrate", "up", "--dry-run"))
		require.Equal(t, false, n.objects("migrate", "up", "--dry-run")[5]["applied"])
		require.Regexp(t, `^STEP +STATE\n0006_copies +applied\n$`, n.ok("migrate", "up"))
	})
}

// What migrate up cannot mend, migrate status does not send people to it for.
func TestTablesWereRemoved(t *testing.T) {
	n := newSession(t)
	path := filepath.Join(t.TempDir(), "test.db")
	n.vars[storeVariable] = "sqlite://" + filepath.ToSlash(path)
	n.ok("migrate", "up")
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "DROP TABLE millpond_audit")
	require.NoError(t, err)
	for _, args := range [][]string{{"migrate", "status"}, {"migrate", "up", "--dry-run"}} {
		n.run(exitError, args...)
		require.Contains(t, n.errB.String(), "tables were removed since")
		require.Contains(t, n.errB.String(), "there is no millpond_audit")
	}
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
		n.run(exitUsage, "migrate", "sql", "--from", "99")
		require.Equal(t, "millpond: --from is 99: there are 6 steps\n", n.errB.String())
	})
}

// The steps are the program's own: nobody is asked for them.
func TestMigrateSQLNeedsNoServer(t *testing.T) {
	for address, table := range map[string]string{
		"postgres://": "millpond_inbox", "postgresql+sql://": "millpond_inbox", "mysql://": "millpond_inbox", "sqlite://": "main.millpond_inbox",
		"postgres://u:p@127.0.0.1:1/db?millpond_prefix=a_&millpond_schema=s": "s.a_inbox",
		"mysql://u:p@127.0.0.1:1/db?millpond_prefix=a_&millpond_schema=s":    "s.a_inbox",
		"sqlite://x.db?prefix=a_": "main.a_inbox",
	} {
		n := newSession(t)
		n.vars[storeVariable] = address
		printed := strings.NewReplacer("`", "", `"`, "").Replace(n.ok("migrate", "sql"))
		require.Contains(t, printed, " "+table+" (", address)
	}
	n := newSession(t)
	n.vars[storeVariable] = "mysql://?millpond_prefx=a_"
	n.run(exitError, "migrate", "sql")
	require.Contains(t, n.errB.String(), "there are millpond_server, millpond_schema and millpond_prefix")
}

// Whoever waits is told so.
func TestMigrateSaysThatItGoesOn(t *testing.T) {
	n := newSession(t)
	url := postgresURL(t)
	n.vars[storeVariable], n.sayEvery = url, 10*time.Millisecond
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock(hashtextextended('millpond_schema', 0))")
	require.NoError(t, err)
	n.run(exitError, "migrate", "up", "--timeout", "500ms")
	require.Contains(t, n.errB.String(), "migrating for 0s; it may be waiting for another process")
	require.NoError(t, tx.Rollback())
	n.ok("migrate", "up")
}
