package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/roletest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// roled returns a migrated database of a server of its own, whose tables the migrator owns,
// and the address of each role.
func roled(t *testing.T) (admin string, as func(stores.Role) string) {
	t.Helper()
	admin = testenv.PrivatePostgres(t).NewDatabase(t)
	const schema = "inboxes"
	address := pgtest.WithParameters(t, admin, "millpond_schema", schema)
	s, err := postgres.Open(t.Context(), address)
	require.NoError(t, err)
	defer s.Close()
	grant := func(r stores.Role) {
		administer(t, admin, append(s.Grants(r), "ALTER ROLE millpond_"+string(r)+" LOGIN")...)
	}
	as = func(r stores.Role) string {
		u, err := url.Parse(address)
		require.NoError(t, err)
		u.User = url.User("millpond_" + string(r))
		return u.String()
	}
	grant(stores.RoleMigrator)
	migrator, err := postgres.Open(t.Context(), as(stores.RoleMigrator))
	require.NoError(t, err)
	defer migrator.Close()
	_, err = migrator.Migrate(t.Context())
	require.NoError(t, err)
	for _, r := range stores.Roles()[1:] {
		grant(r)
		grant(r) // may be repeated
	}
	return admin, as
}

func examine(t *testing.T, address string, e stores.Examination) []stores.Finding {
	t.Helper()
	s, err := postgres.Open(t.Context(), address)
	require.NoError(t, err)
	defer s.Close()
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Role == "" {
		e.Role = stores.RoleRuntime
	}
	if e.Overdue == 0 {
		e.Overdue = time.Hour
	}
	findings, err := s.Examine(t.Context(), e)
	require.NoError(t, err)
	return findings
}

// serious are findings that are no notes.
func serious(findings []stores.Finding) (found []stores.Finding) {
	for _, f := range findings {
		if f.Severity != stores.SeverityNote {
			found = append(found, f)
		}
	}
	return found
}

func TestExamination(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	admin, as := roled(t)
	t.Run("findings", func(t *testing.T) { finds(t, admin, as) })
	t.Run("roles", func(t *testing.T) { roles(t, as) })
}

func finds(t *testing.T, admin string, as func(stores.Role) string) {
	runtime := as(stores.RoleRuntime)
	system := func(name, value string) (plant, undo []string) {
		return []string{"ALTER SYSTEM SET " + name + " = " + value, "SELECT pg_reload_conf()"}, []string{"ALTER SYSTEM RESET " + name, "SELECT pg_reload_conf()"}
	}
	role := func(name, value string) (plant, undo []string) {
		return []string{"ALTER ROLE millpond_runtime SET " + name + " = " + value}, []string{"ALTER ROLE millpond_runtime RESET " + name}
	}
	pair := func(plant, undo string) ([]string, []string) { return []string{plant}, []string{undo} }
	output := `INSERT INTO inboxes.millpond_outbox (created_at, bytes, bucket, destination, topic, type, codec, message_id) VALUES (now() - interval '2 hours', 1, 1, '', 't', '', '', 'id')`
	failure := `INSERT INTO inboxes.millpond_failure (number, consumer, status, placement, content, attempts, uncounted, due_at, message_id, class, cause, error, topic, coordinates)
OVERRIDING SYSTEM VALUE VALUES (NUMBER, 1, 3, 1, 1, 1, 0, now() - interval '2 hours', 'id', '', '', '', '', '')`
	noFailures := "DELETE FROM inboxes.millpond_failure"
	plants := []struct {
		name, check, says string
		do                func() (plant, undo []string)
		e                 stores.Examination
		note              bool
	}{
		{name: "fsync", check: "durability", says: "fsync is off", do: func() ([]string, []string) { return system("fsync", "off") }},
		{name: "full page writes", check: "durability", says: "full_page_writes is off", do: func() ([]string, []string) { return system("full_page_writes", "off") }},
		{name: "commits", check: "durability", says: "synchronous_commit is off", do: func() ([]string, []string) { return role("synchronous_commit", "off") }},
		{name: "local commits", check: "replicas", says: "synchronous_commit is local", do: func() ([]string, []string) {
			plant, undo := system("synchronous_standby_names", "'somebody'")
			local, global := system("synchronous_commit", "local")
			return append(local, plant...), append(undo, global...)
		}},
		{name: "read only", check: "isolation", says: "read_only is on", do: func() ([]string, []string) { return role("default_transaction_read_only", "on") }},
		{name: "isolation", check: "isolation", says: "serializable", note: true, do: func() ([]string, []string) { return role("default_transaction_isolation", "serializable") }},
		{name: "statement timeout", check: "timeouts", says: "statement_timeout is 900 ms", do: func() ([]string, []string) { return role("statement_timeout", "900") }},
		{name: "keepalives", check: "timeouts", says: "client_connection_check_interval is 0", note: true, do: func() ([]string, []string) { return role("client_connection_check_interval", "0") }},
		{name: "autovacuum", check: "vacuum", says: "autovacuum is off", do: func() ([]string, []string) { return system("autovacuum", "off") }},
		{name: "autovacuum of a table", check: "bloat", says: "autovacuum is off for inboxes.millpond_inbox", do: func() ([]string, []string) {
			return pair("ALTER TABLE inboxes.millpond_inbox SET (autovacuum_enabled = off)", "ALTER TABLE inboxes.millpond_inbox RESET (autovacuum_enabled)")
		}},
		{name: "column", check: "schema", says: "lack column millpond_failure.class", do: func() ([]string, []string) {
			return pair("ALTER TABLE inboxes.millpond_failure RENAME class TO was", "ALTER TABLE inboxes.millpond_failure RENAME was TO class")
		}},
		{name: "index", check: "schema", says: "lack index millpond_failure_due", do: func() ([]string, []string) {
			return pair("ALTER INDEX inboxes.millpond_failure_due RENAME TO was", "ALTER INDEX inboxes.was RENAME TO millpond_failure_due")
		}},
		{name: "own column", check: "schema", says: "also have column millpond_inbox.tenant", do: func() ([]string, []string) {
			return pair("ALTER TABLE inboxes.millpond_inbox ADD tenant text", "ALTER TABLE inboxes.millpond_inbox DROP tenant")
		}},
		{name: "migrations", check: "schema", says: "this program needs", do: func() ([]string, []string) {
			return pair("UPDATE inboxes.millpond_schema SET version = version - 100", "UPDATE inboxes.millpond_schema SET version = version + 100")
		}},
		{name: "grants", check: "grants", says: "lacks DELETE on inboxes.millpond_inbox", do: func() ([]string, []string) {
			return pair("REVOKE DELETE ON inboxes.millpond_inbox FROM millpond_runtime", "GRANT DELETE ON inboxes.millpond_inbox TO millpond_runtime")
		}},
		{name: "wide grants", check: "grants", says: "superuser", note: true, do: func() ([]string, []string) {
			return pair("ALTER ROLE millpond_runtime SUPERUSER", "ALTER ROLE millpond_runtime NOSUPERUSER")
		}},
		{name: "outputs", check: "outbox", says: "1 outputs wait to be published, the oldest since 2h0m", do: func() ([]string, []string) { return pair(output, "DELETE FROM inboxes.millpond_outbox") }},
		{name: "buckets", check: "outbox", says: "64 of the 64 buckets", do: func() ([]string, []string) { return pair(output, "DELETE FROM inboxes.millpond_outbox") }},
		{name: "retries", check: "overdue", says: "1 retries are due", do: func() ([]string, []string) {
			return pair(strings.Replace(failure, "NUMBER", "1", 1), noFailures)
		}},
		{name: "pending", check: "waiting", says: "1 message is pending", note: true, do: func() ([]string, []string) {
			return pair(strings.Replace(failure, "NUMBER", "1", 1), noFailures)
		}},
		{name: "numbers", check: "numbers", says: "failure.number has reached", do: func() ([]string, []string) {
			return pair(strings.Replace(failure, "NUMBER", "4398046511104", 1), noFailures)
		}},
		{
			name: "clock", check: "clock", says: "differ by", do: func() ([]string, []string) { return nil, nil },
			e: stores.Examination{Now: func() time.Time { return time.Now().Add(time.Minute) }},
		},
	}
	require.Empty(t, serious(examine(t, runtime, stores.Examination{})))
	for _, p := range plants {
		plant, undo := p.do()
		administer(t, admin, plant...)
		testenv.Eventually(t, p.name, func() bool { // the server reads its settings
			for _, f := range examine(t, runtime, p.e) {
				if f.Check == p.check && strings.Contains(f.What, p.says) && (f.Severity == stores.SeverityNote) == p.note {
					return f.Why != ""
				}
			}
			return false
		})
		administer(t, admin, undo...)
	}
	testenv.Eventually(t, "nothing is left", func() bool { return len(serious(examine(t, runtime, stores.Examination{}))) == 0 })

	t.Run("replicas", func(t *testing.T) {
		config, err := pgconn.ParseConfig(admin)
		require.NoError(t, err)
		config.RuntimeParams["replication"] = "true" // as a standby that connects
		standby, err := pgconn.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		defer standby.Close(context.WithoutCancel(t.Context()))
		require.Contains(t, whats(examine(t, runtime, stores.Examination{})), "1 replicas follow asynchronously")
	})
	t.Run("old transaction", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), strings.Replace(as(stores.RoleRuntime), "millpond_schema", "search_path", 1))
		require.NoError(t, err)
		defer conn.Close(context.WithoutCancel(t.Context()))
		_, err = conn.Exec(t.Context(), "BEGIN")
		require.NoError(t, err)
		testenv.Eventually(t, "it is a second old", func() bool {
			return strings.Contains(whats(examine(t, runtime, stores.Examination{Overdue: time.Millisecond})), "a transaction is open for")
		})
	})
	t.Run("pooler", func(t *testing.T) {
		pooler := testenv.PgBouncer(t, admin)
		u, err := url.Parse(pgtest.WithParameters(t, pooler.URL(), "millpond_schema", "inboxes", "default_query_exec_mode", "exec"))
		require.NoError(t, err)
		require.Contains(t, whats(serious(examine(t, u.String(), stores.Examination{}))), "a pooler in transaction mode is in between")
		told := pgtest.WithParameters(t, pooler.URL(), "millpond_schema", "inboxes", "pgbouncer", "transaction")
		require.Empty(t, serious(examine(t, told, stores.Examination{})))
		require.Contains(t, whats(examine(t, told, stores.Examination{})), "a pooler in transaction mode is in between")
	})
}

func whats(findings []stores.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		b.WriteString(f.What + "\n")
	}
	return b.String()
}

// Each role does what it is for, and nothing else.
func roles(t *testing.T, as func(stores.Role) string) {
	open := func(r stores.Role) *postgres.Store {
		s, err := postgres.Open(t.Context(), as(r))
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	service, operator, reader := open(stores.RoleRuntime), open(stores.RoleOperator), open(stores.RoleReadOnly)
	roletest.Serve(t, roletest.Accounts{Service: service, Operator: operator, Reader: reader, Emit: func() {
		require.NoError(t, pgx.BeginFunc(t.Context(), service.Pool(), func(tx pgx.Tx) error {
			keyed := stores.PublisherConfig{OrderKey: func(stores.Output) []byte { return []byte("key") }}
			return postgres.NewPublisher(tx, service, keyed).Publish("orders", message.NewMessage("a", nil), message.NewMessage("b", nil))
		}))
	}})

	denied := func(s *postgres.Store, texts ...string) {
		t.Helper()
		for _, text := range texts {
			_, err := s.Pool().Exec(t.Context(), text)
			pgErr := &pgconn.PgError{}
			require.True(t, errors.As(err, &pgErr) && pgErr.Code == "42501", "%s: %v", text, err)
		}
	}
	for _, s := range []*postgres.Store{service, operator, reader} {
		denied(s, "DROP TABLE inboxes.millpond_inbox", "TRUNCATE inboxes.millpond_inbox", "ALTER TABLE inboxes.millpond_inbox ADD x int",
			"CREATE TABLE inboxes.x (id int)", "UPDATE inboxes.millpond_audit SET actor = 'nobody'", "UPDATE inboxes.millpond_schema SET version = 1")
	}
	denied(operator, "DELETE FROM inboxes.millpond_inbox", "DELETE FROM inboxes.millpond_audit")
	denied(reader, "SELECT payload FROM inboxes.millpond_failure", "SELECT metadata FROM inboxes.millpond_quarantine", "SELECT * FROM inboxes.millpond_outbox",
		"SELECT facts FROM inboxes.millpond_failure", "SELECT result FROM inboxes.millpond_once", "DELETE FROM inboxes.millpond_inbox")
	for r, s := range map[stores.Role]*postgres.Store{stores.RoleRuntime: service, stores.RoleOperator: operator, stores.RoleReadOnly: reader} {
		findings, err := s.Examine(t.Context(), stores.Examination{Now: time.Now, Role: r, Overdue: time.Hour})
		require.NoError(t, err)
		require.Empty(t, serious(findings), r)
		for _, f := range findings {
			require.NotEqual(t, "grants", f.Check, "%s: %+v", r, f)
		}
	}
}
