package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/stores"
)

// What handlers do to their transaction, hide, and return nil. After each the attempt
// is definitely not committed, nothing of it is in the file, and the key runs again.
func TestDishonestHandlers(t *testing.T) {
	exec := func(statements ...string) func(context.Context, *testing.T, *sql.Tx) {
		return func(_ context.Context, _ *testing.T, tx *sql.Tx) {
			for _, s := range statements {
				_, _ = tx.Exec(s)
			}
		}
	}
	cases := []struct {
		name    string
		handler func(ctx context.Context, t *testing.T, tx *sql.Tx)
		want    []error
	}{
		{name: "raw commit", handler: exec("COMMIT"), want: []error{stores.ErrTxEnded}},
		{name: "raw end", handler: exec("END TRANSACTION"), want: []error{stores.ErrTxEnded}},
		{name: "raw rollback", handler: exec("ROLLBACK"), want: []error{stores.ErrTxEnded}},
		{name: "rollback, begin, write", handler: exec("ROLLBACK", "BEGIN", "INSERT INTO effects VALUES ('new')"), want: []error{stores.ErrTxEnded}},
		{
			name:    "rollback, begin, write in one",
			handler: exec("ROLLBACK; BEGIN; INSERT INTO effects VALUES ('new')"), want: []error{stores.ErrTxEnded},
		},
		{
			name:    "rollback, begin, write, commit in one",
			handler: exec("ROLLBACK; BEGIN; INSERT INTO effects VALUES ('new'); COMMIT"), want: []error{stores.ErrTxEnded},
		},
		{name: "rollback and autocommit in one", handler: exec("ROLLBACK; INSERT INTO effects VALUES ('new')"), want: []error{stores.ErrTxEnded}},
		{name: "commit and autocommit in one", handler: exec("COMMIT; INSERT INTO effects VALUES ('new')"), want: []error{stores.ErrTxEnded}},
		{
			name:    "rollback and savepoint in one",
			handler: exec("ROLLBACK; SAVEPOINT s; INSERT INTO effects VALUES ('new'); RELEASE s"), want: []error{stores.ErrTxEnded},
		},
		{
			name:    "a forged claim in a transaction of its own",
			handler: exec("ROLLBACK; BEGIN; INSERT INTO millpond_inbox SELECT id, x'61', 2, 0, NULL, NULL FROM millpond_consumer"), want: []error{stores.ErrTxEnded},
		},
		{
			name: "insert or rollback",
			handler: func(_ context.Context, t *testing.T, tx *sql.Tx) {
				_, err := tx.Exec("CREATE TABLE once (id INTEGER PRIMARY KEY); INSERT INTO once VALUES (1)")
				require.NoError(t, err)
				_, err = tx.Exec("INSERT OR ROLLBACK INTO once VALUES (1)")
				require.Error(t, err)
			},
			want: []error{stores.ErrTxEnded},
		},
		{
			name: "a trigger that rolls back",
			handler: exec("CREATE TRIGGER no BEFORE INSERT ON effects WHEN new.note = 'no' BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
				"INSERT INTO effects VALUES ('no')"),
			want: []error{stores.ErrTxEnded},
		},
		{
			name: "a write interrupted by its context",
			handler: func(ctx context.Context, t *testing.T, tx *sql.Tx) {
				ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				_, err := tx.ExecContext(ctx, "INSERT INTO effects WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			},
			want: []error{stores.ErrTxEnded},
		},
		{
			name: "tx.Commit",
			handler: func(_ context.Context, t *testing.T, tx *sql.Tx) {
				require.ErrorIs(t, tx.Commit(), stores.ErrTxManaged)
			},
			want: []error{stores.ErrTxEnded, stores.ErrTxManaged},
		},
		{
			name: "tx.Rollback",
			handler: func(_ context.Context, t *testing.T, tx *sql.Tx) {
				require.ErrorIs(t, tx.Rollback(), stores.ErrTxManaged)
			},
			want: []error{stores.ErrTxEnded, stores.ErrTxManaged},
		},
		{
			name: "tx.Commit after a hidden rollback",
			handler: func(_ context.Context, t *testing.T, tx *sql.Tx) {
				_, err := tx.Exec("ROLLBACK; BEGIN; INSERT INTO effects VALUES ('new')")
				require.NoError(t, err)
				require.ErrorIs(t, tx.Commit(), stores.ErrTxManaged)
			},
			want: []error{stores.ErrTxEnded},
		},
		{
			name: "rows left open",
			handler: func(ctx context.Context, t *testing.T, tx *sql.Tx) {
				rows, err := tx.QueryContext(ctx, "SELECT note FROM effects UNION ALL SELECT 'another'") //nolint:sqlclosecheck,rowserrcheck // the point
				require.NoError(t, err)
				require.True(t, rows.Next())
			},
			want: []error{stores.ErrTxBusy},
		},
		{
			name: "rows of a prepared statement left open",
			handler: func(ctx context.Context, t *testing.T, tx *sql.Tx) {
				stmt, err := tx.PrepareContext(ctx, "INSERT INTO effects VALUES ('new') RETURNING note") //nolint:sqlclosecheck // the point
				require.NoError(t, err)
				rows, err := stmt.QueryContext(ctx) //nolint:sqlclosecheck,rowserrcheck // the point
				require.NoError(t, err)
				require.True(t, rows.Next())
			},
			want: []error{stores.ErrTxBusy},
		},
		{
			name: "a deferred constraint",
			handler: exec("CREATE TABLE parent (id INTEGER PRIMARY KEY)",
				"CREATE TABLE child (parent REFERENCES parent DEFERRABLE INITIALLY DEFERRED)", "INSERT INTO child VALUES (1)"),
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := open(t)
			claim := claimOf("a")
			handler := Handler(func(ctx context.Context, tx *sql.Tx, _ *message.Message) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('before')")
				require.NoError(t, err)
				c.handler(ctx, t, tx)
				_, _ = tx.ExecContext(ctx, "INSERT INTO effects VALUES ('after')")
				return nil
			})
			a := o.begin(claim)
			msg := message.NewMessage("", nil)
			msg.SetContext(a.Context(t.Context()))
			require.NoError(t, handler(msg))

			err := a.Commit(t.Context())
			require.ErrorIs(t, err, stores.ErrNotCommitted)
			require.NotErrorIs(t, err, stores.ErrCommitUnknown)
			for _, want := range c.want {
				require.ErrorIs(t, err, want)
			}
			require.NoError(t, a.Rollback(t.Context()))
			require.Equal(t, err, a.Commit(t.Context()), "a second Commit answers the same")
			o.requireCounts(0, 0)

			o.complete(claim)
			o.requireCounts(1, 1)
			require.Equal(t, stores.Duplicate, o.verdict(claim).Outcome)
		})
	}
}

// What handlers may do.
func TestHonestHandlers(t *testing.T) {
	cases := map[string]func(t *testing.T, tx *sql.Tx) error{
		"savepoints": func(t *testing.T, tx *sql.Tx) error {
			_, err := tx.Exec("SAVEPOINT s; INSERT INTO effects VALUES ('undone'); ROLLBACK TO s; RELEASE s; INSERT INTO effects VALUES ('kept')")
			return err
		},
		"an open savepoint": func(t *testing.T, tx *sql.Tx) error {
			_, err := tx.Exec("SAVEPOINT s; INSERT INTO effects VALUES ('kept')")
			return err
		},
		"ddl": func(t *testing.T, tx *sql.Tx) error {
			_, err := tx.Exec("CREATE TABLE made (id INTEGER); INSERT INTO effects VALUES ('kept'); DROP TABLE made")
			return err
		},
		"a statement that failed": func(t *testing.T, tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO nowhere VALUES (1)")
			require.Error(t, err)
			_, err = tx.Exec("BEGIN")
			require.Error(t, err)
			_, err = tx.Exec("INSERT INTO effects VALUES ('kept')")
			return err
		},
		"a read interrupted by its context": func(t *testing.T, tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			var n int
			err := tx.QueryRowContext(ctx, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n").Scan(&n)
			require.Error(t, err)
			_, err = tx.Exec("INSERT INTO effects VALUES ('kept')")
			return err
		},
		"prepared statements and rows": func(t *testing.T, tx *sql.Tx) error {
			stmt, err := tx.Prepare("INSERT INTO effects VALUES (?) RETURNING note")
			require.NoError(t, err)
			defer stmt.Close()
			var note string
			require.NoError(t, stmt.QueryRow("kept").Scan(&note))
			require.Equal(t, "kept", note)
			rows, err := tx.Query("SELECT note FROM effects")
			require.NoError(t, err)
			defer rows.Close()
			columns, err := rows.ColumnTypes()
			require.NoError(t, err)
			require.Equal(t, "TEXT", columns[0].DatabaseTypeName())
			n := 0
			for rows.Next() {
				n++
			}
			require.Equal(t, 1, n)
			return rows.Err()
		},
	}
	for name, handler := range cases {
		t.Run(name, func(t *testing.T) {
			o := open(t)
			a := o.begin(claimOf("a"))
			require.NoError(t, handler(t, txOf(t, a)))
			require.NoError(t, a.Commit(t.Context()))
			o.requireCounts(1, 1)
		})
	}
}

// A handler that changes the connection must not change it for the next delivery.
func TestHandlersDoNotChangeTheConnection(t *testing.T) {
	for name, query := range map[string]string{
		"read-only":           "PRAGMA query_only = ON",
		"exclusive locking":   "PRAGMA locking_mode = EXCLUSIVE",
		"page limit":          "PRAGMA max_page_count = 1",
		"temporary shadow":    "CREATE TEMP TABLE millpond_inbox (nothing)",
		"temporary trigger":   "CREATE TEMPORARY TRIGGER no BEFORE INSERT ON main.millpond_inbox BEGIN SELECT RAISE(ABORT, 'no'); END",
		"temporary, by name":  `CREATE VIEW "temp"."effects" AS SELECT 1 AS note`,
		"attached":            "ATTACH ':memory:' AS other",
		"out of the WAL mode": "ROLLBACK; PRAGMA journal_mode = DELETE",
		"not durable":         "ROLLBACK; PRAGMA synchronous = OFF",
		"no foreign keys":     "ROLLBACK; PRAGMA foreign_keys = OFF",
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t)
			a := o.begin(claimOf("a"))
			_, _ = txOf(t, a).Exec(query)
			_ = a.Commit(t.Context())
			before, _ := o.counts()

			o.complete(claimOf("b"))
			rows, effects := o.counts()
			require.Equal(t, before+1, rows)
			require.Equal(t, 1, effects)
			a = o.begin(claimOf("c"))
			var synchronous, keys, attached int
			var mode string
			tx := txOf(t, a)
			require.NoError(t, tx.QueryRow("PRAGMA synchronous").Scan(&synchronous))
			require.NoError(t, tx.QueryRow("PRAGMA foreign_keys").Scan(&keys))
			require.NoError(t, tx.QueryRow("PRAGMA journal_mode").Scan(&mode))
			require.NoError(t, tx.QueryRow("SELECT count(*) FROM pragma_database_list WHERE name = 'other'").Scan(&attached))
			require.Equal(t, []any{1, 1, "wal", 0}, []any{synchronous, keys, mode, attached})
			require.NoError(t, a.Rollback(t.Context()))
		})
	}
}

func TestReenteredAttemptIsDoomed(t *testing.T) {
	o := open(t)
	handler := Handler(func(ctx context.Context, tx *sql.Tx, _ *message.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('once')")
		return err
	})
	a := o.begin(claimOf("a"))
	msg := message.NewMessage("", nil)
	msg.SetContext(a.Context(t.Context()))
	require.NoError(t, handler(msg))
	require.ErrorIs(t, handler(msg), stores.ErrReentered)
	err := a.Commit(t.Context())
	require.ErrorIs(t, err, stores.ErrNotCommitted)
	require.ErrorIs(t, err, stores.ErrReentered)
	o.requireCounts(0, 0)
}

func TestHandlerWithoutAttempt(t *testing.T) {
	handler := Handler(func(context.Context, *sql.Tx, *message.Message) error { return errors.New("ran") })
	require.ErrorIs(t, handler(message.NewMessage("", nil)), stores.ErrNoTx)
	_, ok := TxFromContext(t.Context())
	require.False(t, ok)
}

// Another file that the handler has attached can make COMMIT fail before anything is
// written.
func TestAttachedDatabaseIsLocked(t *testing.T) {
	o := open(t)
	path := filepath.Join(t.TempDir(), "attached.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE t (x); INSERT INTO t VALUES (1), (2)")
	require.NoError(t, err)
	reader, err := db.Query("SELECT x FROM t")
	require.NoError(t, err)
	defer reader.Close()
	require.True(t, reader.Next())

	a := o.begin(claimOf("a"))
	o.effect(a, "one")
	_, err = txOf(t, a).Exec("ATTACH ? AS other", path)
	require.NoError(t, err)
	_, err = txOf(t, a).Exec("INSERT INTO other.t VALUES (3)")
	require.NoError(t, err)
	err = a.Commit(t.Context())
	require.ErrorIs(t, err, stores.ErrNotCommitted)
	require.ErrorContains(t, err, "SQLITE_BUSY")
	require.NoError(t, reader.Err())
	o.requireCounts(0, 0)
	o.complete(claimOf("a"))
}

func TestOutlivesTransaction(t *testing.T) {
	for query, want := range map[string]bool{
		"":                                false,
		"SELECT attempts, attachment":     false,
		"UPDATE template SET tempo = 1":   false,
		"insert into x values ('a')":      false,
		"pragma query_only=on":            true,
		"select 1;\nPRAGMA\tx":            true,
		"/**/aTTach 'x' as y":             true,
		"detach y":                        true,
		"create temp table x(y)":          true,
		"create temporary table x(y)":     true,
		"create table [temp].x(y)":        true,
		"select * from pragma_table_info": false,
		"x'":                              false,
		"drop table temp":                 true,
	} {
		require.Equal(t, want, outlivesTransaction(query), query)
	}
}
