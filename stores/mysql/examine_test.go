package mysql_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/roletest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// roled is a migrated database of a server of its own, with an account for each role.
type roled struct {
	*testing.T

	admin  *sql.DB
	config *driver.Config
}

func newRoled(t *testing.T, p product) roled {
	t.Helper()
	server := p.private(t, testenv.WithMySQLSettings(map[string]string{"log_bin": "log", "server_id": "1"}))
	r := roled{T: t, config: mustParse(t, server.NewDatabase(t))}
	r.admin = openDB(t, r.config, nil)
	r.grant(stores.RoleMigrator)
	_, err := r.open(stores.RoleMigrator).Migrate(t.Context())
	require.NoError(t, err)
	for _, role := range stores.Roles()[1:] {
		r.grant(role)
		r.grant(role) // may be repeated
	}
	return r
}

func (r roled) exec(texts ...string) {
	r.Helper()
	for _, text := range texts {
		_, err := r.admin.ExecContext(r.Context(), text)
		require.NoError(r, err, text)
	}
}

func (r roled) grant(role stores.Role) {
	r.Helper()
	s, err := mysql.New(r.admin, mysql.Config{})
	require.NoError(r, err)
	r.exec(s.Grants(role)...)
	r.exec(fmt.Sprintf("CREATE USER IF NOT EXISTS app_%s", role), fmt.Sprintf("GRANT millpond_%s TO app_%s", role, role))
	of := "TO"
	if strings.Contains(r.version(), "MariaDB") {
		of = "FOR"
	}
	r.exec(fmt.Sprintf("SET DEFAULT ROLE millpond_%s %s app_%s", role, of, role))
}

func (r roled) version() (version string) {
	r.Helper()
	require.NoError(r, r.admin.QueryRowContext(r.Context(), "SELECT VERSION()").Scan(&version))
	return version
}

func (r roled) open(role stores.Role) *mysql.Store {
	r.Helper()
	config := r.config.Clone()
	config.User, config.Passwd = "app_"+string(role), ""
	s, err := mysql.OpenDB(r.Context(), config, mysql.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(r, err)
	r.Cleanup(func() { _ = s.Close() })
	return s
}

func (r roled) examine(s *mysql.Store, e stores.Examination) []stores.Finding {
	r.Helper()
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Role == "" {
		e.Role = stores.RoleRuntime
	}
	e.Overdue = time.Hour
	findings, err := s.Examine(r.Context(), e)
	require.NoError(r, err)
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

// One server a day, for it takes some seconds to be installed.
func TestExamination(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	for _, p := range turnOf(t) {
		r, turn := newRoled(t, p), string(p.Product)
		t.Run(turn+" roles", func(t *testing.T) { r.T = t; r.roles() })
		t.Run(turn+" findings", func(t *testing.T) { r.T = t; r.finds(p) })
		t.Run(turn+" open transactions", func(t *testing.T) { r.T = t; r.seesOpenTransactions() })
	}
}

func (r roled) finds(p product) {
	t := r.T
	global := func(name, value, back string) [2]string {
		return [2]string{"SET GLOBAL " + name + " = " + value, "SET GLOBAL " + name + " = " + back}
	}
	const failure = `INSERT INTO millpond_failure (number, consumer, status, placement, content, attempts, uncounted, due_at, budget_at, first_at, last_at, message_id, class, cause, error, topic, coordinates, history)
VALUES (%d, 1, 3, 1, 1, 1, 0, 1, 1, 1, 1, 'id', '', '', '', '', '', '[]')`
	const output = `INSERT INTO millpond_outbox (created_at, bytes, bucket, destination, topic, type, codec, message_id) VALUES (1, 1, 1, '', 't', '', '', 'id')`
	const noFailures, noOutputs = "DELETE FROM millpond_failure", "DELETE FROM millpond_outbox"
	plants := []struct {
		check, says string
		plant       [2]string // and how it is undone
		e           stores.Examination
		note        bool
	}{
		{check: "durability", says: "innodb_flush_log_at_trx_commit is 2", plant: global("innodb_flush_log_at_trx_commit", "2", "1")},
		{check: "durability", says: "sync_binlog is 0", plant: global("sync_binlog", "0", "1")},
		{check: "session", says: "sql_mode is ", plant: [2]string{"SET GLOBAL sql_mode = ''", "SET GLOBAL sql_mode = DEFAULT"}},
		{check: "limits", says: "max_connections is 10", plant: global("max_connections", "10", "200")},
		{check: "limits", says: "max_allowed_packet is 1048576", plant: global("max_allowed_packet", "1048576", "67108864"), note: true},
		{check: "replicas", says: "read_only is on", plant: global("read_only", "ON", "OFF")},
		{check: "timeouts", says: "wait_timeout is 20 s", plant: global("wait_timeout", "20", "28800")},
		{check: "timeouts", says: "net_read_timeout is 10 s", plant: global("net_read_timeout", "10", "30")},
		{check: "settings", says: "auto_increment_increment is not 1", plant: global("auto_increment_increment", "3", "1")},
		{check: "schema", says: "lack column millpond_failure.class", plant: [2]string{
			"ALTER TABLE millpond_failure RENAME COLUMN class TO was", "ALTER TABLE millpond_failure RENAME COLUMN was TO class",
		}},
		{check: "schema", says: "lack index millpond_failure_due", plant: [2]string{
			"ALTER TABLE millpond_failure RENAME INDEX millpond_failure_due TO was", "ALTER TABLE millpond_failure RENAME INDEX was TO millpond_failure_due",
		}},
		{check: "schema", says: "also have column millpond_inbox.tenant", plant: [2]string{
			"ALTER TABLE millpond_inbox ADD COLUMN tenant INT", "ALTER TABLE millpond_inbox DROP COLUMN tenant",
		}},
		{check: "schema", says: "this program needs", plant: [2]string{
			"UPDATE millpond_schema SET version = version - 100 ORDER BY version", "UPDATE millpond_schema SET version = version + 100 ORDER BY version DESC",
		}},
		{check: "grants", says: "lacks DELETE on millpond_inbox", plant: [2]string{
			"REVOKE DELETE ON millpond_inbox FROM millpond_runtime", "GRANT DELETE ON millpond_inbox TO millpond_runtime",
		}},
		{check: "grants", says: "may change and drop tables", plant: [2]string{"GRANT DROP ON * TO app_runtime", "REVOKE DROP ON * FROM app_runtime"}, note: true},
		{check: "outbox", says: "1 outputs wait to be published", plant: [2]string{output, noOutputs}},
		{check: "outbox", says: "64 of the 64 buckets", plant: [2]string{output, noOutputs}},
		{check: "overdue", says: "1 retries are due", plant: [2]string{fmt.Sprintf(failure, 1), noFailures}},
		{check: "waiting", says: "1 message is pending", plant: [2]string{fmt.Sprintf(failure, 1), noFailures}, note: true},
		{check: "numbers", says: "failure.number has reached", plant: [2]string{fmt.Sprintf(failure, int64(1)<<42), noFailures}},
		{check: "clock", says: "differ by", plant: [2]string{"DO 0", "DO 0"}, e: stores.Examination{Now: func() time.Time { return time.Now().Add(time.Minute) }}},
	}
	if !p.maria() {
		plants = append(plants, plants[0])
		plants[len(plants)-1].check, plants[len(plants)-1].says, plants[len(plants)-1].note = "procedures", "procedures is missing", true
		plants[len(plants)-1].plant = [2]string{"DROP PROCEDURE millpond_emit_complete", "DO 0"}
		plants = append(plants, plants[len(plants)-1])
		plants[len(plants)-1].plant[0] = "DROP PROCEDURE millpond_look"
	}
	require.Empty(t, serious(r.examine(r.open(stores.RoleRuntime), stores.Examination{})))
	for _, plant := range plants {
		r.exec(plant.plant[0])
		found := false
		s := r.open(stores.RoleRuntime)
		findings := r.examine(s, plant.e)
		require.NoError(t, s.Close())
		for _, f := range findings {
			found = found || f.Check == plant.check && strings.Contains(f.What, plant.says) && (f.Severity == stores.SeverityNote) == plant.note && f.Why != ""
		}
		require.True(t, found, "%s: %+v", plant.says, findings)
		r.exec(plant.plant[1])
	}
	require.Empty(t, serious(r.examine(r.open(stores.RoleRuntime), stores.Examination{})))
}

func TestReplicasAreSeen(t *testing.T) {
	t.Parallel()
	r := newRoled(t, onMariaDB)
	r.exec("GRANT PROCESS ON *.* TO app_runtime")
	standby := testenv.PrivateMariaDB(t, testenv.WithMySQLSettings(map[string]string{"server_id": "2"}))
	host, port, _ := strings.Cut(r.config.Addr, ":")
	db := openDB(t, mustParse(t, standby.NewDatabase(t)), nil)
	for _, text := range []string{fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = '%s'", host, port, r.config.User), "START SLAVE"} {
		_, err := db.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	s := r.open(stores.RoleRuntime)
	testenv.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(fmt.Sprint(r.examine(s, stores.Examination{})), "1 replicas follow asynchronously")
	})
}

// A transaction that stays open keeps what was purged.
func (r roled) seesOpenTransactions() {
	t := r.T
	s := r.open(stores.RoleRuntime)
	look := func() string {
		found, err := s.Examine(t.Context(), stores.Examination{Now: time.Now, Role: stores.RoleRuntime, Overdue: time.Second})
		require.NoError(t, err)
		return fmt.Sprint(found)
	}
	tx, err := r.admin.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE millpond_schema SET name = name")
	require.NoError(t, err)
	require.NotContains(t, look(), "a transaction is open", "who may not see it is told so elsewhere")
	r.exec("GRANT PROCESS ON *.* TO app_runtime")
	s = r.open(stores.RoleRuntime)
	testenv.Eventually(t, "the open transaction is seen", func() bool { return strings.Contains(look(), "a transaction is open for ") })
	require.NoError(t, tx.Rollback())
	require.NotContains(t, look(), "a transaction is open")
}

// Each role does what it is for, and nothing else.
func (r roled) roles() {
	t := r.T
	service, operator, reader := r.open(stores.RoleRuntime), r.open(stores.RoleOperator), r.open(stores.RoleReadOnly)
	roletest.Serve(t, roletest.Accounts{Service: service, Operator: operator, Reader: reader, Emit: func() {
		tx, err := service.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		keyed := stores.PublisherConfig{OrderKey: func(stores.Output) []byte { return []byte("key") }}
		require.NoError(t, mysql.NewPublisher(tx, service, keyed).Publish("orders", message.NewMessage("a", nil), message.NewMessage("b", nil)))
		require.NoError(t, tx.Commit())
	}})
	denied := func(s *mysql.Store, texts ...string) {
		t.Helper()
		for _, text := range texts {
			_, err := s.DB().ExecContext(t.Context(), text)
			require.ErrorContains(t, err, "denied", text)
		}
	}
	for _, s := range []*mysql.Store{service, operator, reader} {
		denied(s, "DROP TABLE millpond_inbox", "TRUNCATE millpond_inbox", "ALTER TABLE millpond_inbox ADD COLUMN x int", "CREATE TABLE x (id int)",
			"UPDATE millpond_audit SET actor = 'nobody'", "UPDATE millpond_schema SET version = 1")
	}
	denied(operator, "DELETE FROM millpond_inbox", "DELETE FROM millpond_audit")
	denied(reader, "SELECT payload FROM millpond_failure", "SELECT metadata FROM millpond_quarantine", "SELECT * FROM millpond_outbox", "DELETE FROM millpond_inbox")
	for role, s := range map[stores.Role]*mysql.Store{stores.RoleRuntime: service, stores.RoleOperator: operator, stores.RoleReadOnly: reader} {
		findings := r.examine(s, stores.Examination{Role: role})
		require.Empty(t, serious(findings), role)
		for _, f := range findings {
			require.NotEqual(t, "grants", f.Check, "%s: %+v", role, f)
		}
	}
}
