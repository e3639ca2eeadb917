package mysql_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/upgradetest"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// Programs of the version before go on while its tables are migrated, and afterwards.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, p := range turnOf(t) {
		s, old := versionBefore(t, p)
		upgradetest.Run(t, upgradetest.Old{Store: s, Deliver: deliversAsBefore(t, old)})
	}
}

// versionBefore is a database with tables of the version before.
func versionBefore(t *testing.T, p product) (*mysql.Store, *sql.DB) {
	t.Helper()
	fixture, err := os.ReadFile("testdata/schema_0003.sql")
	require.NoError(t, err)
	config := mustParse(t, p.shared(t).NewDatabase(t))
	old := openDB(t, config, nil)
	for statement := range strings.SplitSeq(string(fixture), ";\n\n") {
		_, err := old.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, old
}

// deliversAsBefore handles messages by the statements of the version before.
func deliversAsBefore(t *testing.T, old *sql.DB) func(id string) error {
	t.Helper()
	const now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	return func(id string) error {
		tx, err := old.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		for _, text := range []string{
			"INSERT INTO millpond_inbox (consumer, message_id, status, completed_at, token, fingerprint, traceparent) VALUES (2970855629233269707, '" + id + "', 1, " + now + ", 7, NULL, NULL)",
			fmt.Sprintf(upgradetest.Failure, id+" failed", "1"), fmt.Sprintf(upgradetest.Output, id, "1"),
			"INSERT INTO millpond_inbox (consumer, message_id, status) VALUES (2970855629233269707, '" + id + " failed', 4)",
			"UPDATE millpond_inbox SET status = 2 WHERE consumer = 2970855629233269707 AND message_id = '" + id + "' AND token = 7 AND status = 1",
		} {
			if _, err := tx.ExecContext(t.Context(), text); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
}

// A migration of a large inbox keeps no delivery waiting, whatever else uses the tables.
func TestMigrationKeepsNoDeliveryWaiting(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	const digits = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	for _, p := range turnOf(t) {
		busy := func(thousands int) (*mysql.Store, *sql.DB, upgradetest.Busy) {
			s, old := versionBefore(t, p)
			for from := range thousands {
				_, err := old.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO millpond_inbox (consumer, message_id, status, completed_at, token, fingerprint)
SELECT %d, CONCAT('u:', %07d, a.n, b.n, c.n), 2, 1, 1, REPEAT('f', 33) FROM %s a, %[3]s b, %[3]s c`, upgradetest.Number, from, digits))
				require.NoError(t, err)
			}
			handler, err := old.Conn(t.Context())
			require.NoError(t, err)
			file := "SELECT table_id FROM information_schema.innodb_tables WHERE name = CONCAT(DATABASE(), '/millpond_inbox')"
			if p.Product == onMariaDB.Product {
				file = strings.Replace(file, "innodb_tables", "innodb_sys_tables", 1)
			}
			return s, old, upgradetest.Busy{
				Deliver: deliversAsBefore(t, old),
				Begin: func() (func() error, error) {
					for _, text := range []string{"BEGIN", "SELECT 1 FROM millpond_consumer, millpond_inbox, millpond_failure, millpond_quarantine, millpond_outbox LIMIT 1"} {
						if _, err := handler.ExecContext(t.Context(), text); err != nil {
							return nil, err
						}
					}
					return func() error { _, err := handler.ExecContext(t.Context(), "COMMIT"); return err }, nil
				},
				Migrate: func() error { _, err := s.Migrate(t.Context()); return err },
				File: func() (id string, err error) {
					err = old.QueryRowContext(t.Context(), file).Scan(&id)
					return id, err
				},
			}
		}
		_, _, kept := busy(upgradetest.Rows() / 1000)
		s, old, broken := busy(1)
		broken.Migrate = func() error {
			statements := []string{"ALTER TABLE millpond_inbox FORCE"}
			for _, m := range s.Migrations()[3:] {
				statements = append(statements, mysql.StatementsOf(m.SQL)...)
			}
			for _, text := range statements {
				if _, err := old.ExecContext(t.Context(), text); err != nil {
					return err
				}
			}
			return nil
		}
		upgradetest.Bounded(t, kept, broken)
	}
}

// The servers commit each statement of a migration apart: whichever was the last, the next
// call goes on behind it.
func TestMigrateGoesOnBehindEachStatement(t *testing.T) {
	t.Parallel()
	for _, p := range turnOf(t) {
		offline, err := mysql.New(openDB(t, mustParse(t, p.shared(t).URL()), nil), mysql.Config{})
		require.NoError(t, err)
		var statements []string
		for _, m := range offline.Migrations() {
			statements = append(statements, mysql.StatementsOf(m.SQL)...)
		}
		config := mustParse(t, p.shared(t).NewDatabase(t))
		admin := openDB(t, config, nil)
		for _, last := range rotation.TurnEvery(t, len(products), 6, numbersUpTo(len(statements))...) {
			s, err := mysql.OpenDB(t.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			for i, statement := range statements {
				if fmt.Sprint(i) == last {
					break
				}
				_, err := admin.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
			_, err = s.Migrate(t.Context())
			require.NoError(t, err, "after %s statements", last)
			findings, err := s.Examine(t.Context(), stores.Examination{Now: time.Now, Role: stores.RoleMigrator, Overdue: time.Hour})
			require.NoError(t, err)
			for _, f := range findings {
				require.NotEqual(t, "schema", f.Check, "after %s statements: %+v", last, f)
			}
			require.NoError(t, s.Close())
			for _, table := range s.ShapeTables() {
				_, err := admin.ExecContext(t.Context(), "DROP TABLE "+table)
				require.NoError(t, err)
			}
		}
	}
}

func numbersUpTo(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// A step that changes a table was interrupted behind the change.
func TestMigrateGoesOnBehindAChangeOfATable(t *testing.T) {
	t.Parallel()
	for _, p := range turnOf(t) {
		s, err := mysql.OpenDB(t.Context(), mustParse(t, p.shared(t).NewDatabase(t)), mysql.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		_, err = s.Migrate(t.Context())
		require.NoError(t, err)
		const step = `ALTER TABLE millpond_failure ADD COLUMN later INT NOT NULL DEFAULT 0;

ALTER TABLE millpond_failure ADD KEY millpond_failure_later (later);

CREATE TABLE millpond_later (id INT);

ALTER TABLE millpond_failure DROP KEY millpond_failure_cause;
`
		for range 2 {
			require.NoError(t, s.Apply(t.Context(), step))
		}
		require.ErrorIs(t, s.Apply(t.Context(), "ALTER TABLE millpond_nothing ADD COLUMN x INT"), stores.ErrUnavailable)
	}
}
