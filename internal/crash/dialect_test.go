package crash

import (
	"context"
	"database/sql"
	"regexp"
	"strings"

	"github.com/millpond-go/millpond/internal/dbproxy"
	"github.com/millpond-go/millpond/internal/myproxy"
	"github.com/millpond-go/millpond/internal/pgproxy"
)

// dialect is what differs between the databases.
type dialect struct {
	placeholder func(query string) string  // $1 as the driver wants it
	orNothing   func(insert string) string // an INSERT that does nothing if the row is there

	// Statements of handlers.
	linger string // a query that takes a while
	fail   string // see transaction.fail
	detour string // lets the store ask whose transaction it is

	// What is written otherwise in the schema.
	text, sequence, deferred string
	procedures               []string

	sessions sessions // what handlers do to theirs

	// Queries of the parent.
	ordered  string // the column of effect that grows
	dueIn    string // SQL for the seconds until a failure f is due
	released string // SQL for the id under which a row q runs once it was released
	activity string // what the server is doing; "": there is no server

	endSessions func(ctx context.Context, admin *sql.DB) error // of all but the parent
	proxy       func(url string) (proxy, error)
	without     []conduct // that are nothing special, or that nobody can do
}

// proxy is the network to a server.
type proxy interface {
	URL() string
	SetRandomFaults(faults dbproxy.RandomFaults)
	CutAll()
	Redirect(upstream string)
	Freeze()
	Thaw()
	Close() error
}

var postgresDialect = dialect{
	placeholder: func(query string) string { return query },
	orNothing:   onConflictDoNothing,
	linger:      "SELECT count(pg_sleep(0.05))",
	fail:        takeAgain,
	detour:      "SELECT 1; SELECT 2",
	text:        "text",
	sequence:    ", seq bigserial",
	deferred:    " REFERENCES parent DEFERRABLE INITIALLY DEFERRED",
	ordered:     "seq",
	dueIn:       "coalesce(extract(epoch FROM f.due_at - now())::float8, 0)",
	released:    "convert_to('x:quarantine/' || q.id::text, 'UTF8')",
	sessions:    postgresSessions,
	activity: `SELECT a.pid, a.state, a.wait_event, (now() - a.xact_start)::text AS in_transaction_for,
(SELECT count(*) FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory') AS advisory_locks, left(a.query, 100)
FROM pg_stat_activity a WHERE a.datname = current_database() ORDER BY 1`,
	endSessions: func(ctx context.Context, admin *sql.DB) error {
		_, err := admin.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name <> $1`, adminName)
		return err
	},
	proxy:   func(url string) (proxy, error) { return pgproxy.Start(url) },
	without: []conduct{defines},
}

var sqliteDialect = dialect{
	placeholder: func(query string) string { return strings.ReplaceAll(query, "$", "?") },
	orNothing:   onConflictDoNothing,
	linger:      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 20000) SELECT count(*) FROM c",
	fail:        "INSERT OR ROLLBACK INTO taken VALUES (1)",
	detour:      "PRAGMA cache_size = 1000",
	text:        "text",
	deferred:    " REFERENCES parent DEFERRABLE INITIALLY DEFERRED",
	ordered:     "rowid",
	dueIn:       "coalesce(f.due_at / 1e6 - unixepoch('subsec'), 0.0)",
	released:    "CAST('x:quarantine/' || CAST(q.id AS text) AS blob)",
	sessions:    sqliteSessions,
	without:     []conduct{defines},
}

// mysqlDialect is that of MariaDB as well. Parameters have no numbers there: a query has
// each of them once, in their order.
var mysqlDialect = dialect{
	placeholder: func(query string) string { return numbered.ReplaceAllString(query, "?") },
	orNothing:   func(insert string) string { return strings.Replace(insert, "INSERT", "INSERT IGNORE", 1) },
	linger:      "SELECT SLEEP(0.05)",
	fail:        "CALL deadlocked()",
	detour:      "SET @detour = 1",
	text:        "varchar(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
	sequence:    ", seq bigint NOT NULL AUTO_INCREMENT PRIMARY KEY",
	deferred:    ", FOREIGN KEY (n) REFERENCES parent (n)", // there are no deferred ones
	procedures: []string{
		// What the server does when it has found a deadlock.
		"CREATE PROCEDURE deadlocked() BEGIN ROLLBACK; SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; END",
	},
	ordered:     "seq",
	dueIn:       "coalesce((f.due_at - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) / 1e6, 0e0)",
	released:    "CAST(concat('x:quarantine/', q.id) AS binary)",
	sessions:    mysqlSessions,
	activity:    "SHOW PROCESSLIST",
	endSessions: killAll,
	proxy:       func(url string) (proxy, error) { return myproxy.Start(url) },
}

var numbered = regexp.MustCompile(`\$\d`)

func onConflictDoNothing(insert string) string { return insert + " ON CONFLICT DO NOTHING" }

// killAll ends all sessions but that of the parent, who has one. (The information schema
// has the same list, but MySQL refuses to show it while a statement has binary values.)
func killAll(ctx context.Context, admin *sql.DB) error {
	var own, database string
	if err := admin.QueryRowContext(ctx, "SELECT CONNECTION_ID(), DATABASE()").Scan(&own, &database); err != nil {
		return err
	}
	var ids []string
	err := query(ctx, admin, "SHOW PROCESSLIST", func(rows *sql.Rows) error {
		session, err := scanRow(rows)
		if id := session["Id"]; session["db"] == database && id != own {
			ids = append(ids, id)
		}
		return err
	})
	for _, id := range ids {
		_, _ = admin.ExecContext(ctx, "KILL "+id) // it may be gone by itself
	}
	return err
}

// scanRow reads whatever columns there are.
func scanRow(rows *sql.Rows) (map[string]string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	row := make(map[string]string)
	err = rows.Scan(into...)
	for i, column := range columns {
		row[column] = values[i].String
	}
	return row, err
}
