package mysql

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

var (
	_ stores.Examiner = (*Store)(nil)
	_ stores.Granter  = (*Store)(nil)
)

// Examine implements stores.Examiner.
func (s *Store) Examine(ctx context.Context, e stores.Examination) ([]stores.Finding, error) {
	return s.tables.Examine(ctx, e, sqlstore.Looks{
		Server: []sqlstore.Look{{Check: "durability", At: s.ofInnoDB(s.lookAtDoublewrite)}, {Check: "replicas", At: s.ofInnoDB(s.lookAtReplicas)}, {Check: "timeouts", At: s.lookAtTimeouts}, {Check: "bloat", At: s.ofInnoDB(s.lookAtTransactions)}},
		Tables: []sqlstore.Look{{Check: "settings", At: s.lookAtSettings}, {Check: "grants", At: s.lookAtGrants}, {Check: "bloat", At: s.lookAtFreePages}},
		Shape:  s.shapeThere,
	})
}

// ofInnoDB skips a check on TiDB, where the settings it reads have no effect.
func (s *Store) ofInnoDB(at func(context.Context, *sqlstore.Examining, sqlstore.Adder) error) func(context.Context, *sqlstore.Examining, sqlstore.Adder) error {
	return func(ctx context.Context, x *sqlstore.Examining, add sqlstore.Adder) error {
		if t := s.texts(); t != nil && t.tidb {
			return nil
		}
		return at(ctx, x, add)
	}
}

func isOn(value string) bool { return value == "1" || value == "ON" }

// lookAtSettings repeats the warnings from the store's start.
func (s *Store) lookAtSettings(ctx context.Context, x *sqlstore.Examining, add sqlstore.Adder) error {
	for _, w := range s.weaknesses(ctx, s.texts().server) {
		x.Findings = append(x.Findings, w.finding())
	}
	if s.config.AnyServer {
		_, err := s.identify(ctx, s.db)
		sqlstore.AnyServer(add, "MySQL, MariaDB or TiDB", err, s.prove(ctx, s.dialect.Names, s.texts().server))
	} else if s.db.Stats().MaxOpenConnections == 1 {
		add(stores.SeverityNote, "the pool has one connection", "checking that the server's locks work takes two", "call SetMaxOpenConns with more")
	}
	if s.texts().unordered {
		add(stores.SeverityWarning, "auto_increment_increment is not 1, the server is a member of a Galera cluster, or TiDB's tables were made without AUTO_ID_CACHE 1", "several servers draw numbers, so outputs cannot have order keys",
			"write to one server only, and SET GLOBAL auto_increment_increment = 1; on TiDB let millpond migrate up make the tables")
	}
	return nil
}

func (s *Store) lookAtDoublewrite(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	if v, known := s.variable(ctx, "GLOBAL.innodb_doublewrite"); known && (v == "0" || v == "OFF") {
		add(stores.SeverityWarning, "innodb_doublewrite is "+v, "a crash of the server's machine can damage the tables", "innodb_doublewrite = ON in the server's configuration, and a restart")
	}
	return nil
}

func (s *Store) lookAtReplicas(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	if v, known := s.variable(ctx, "GLOBAL.read_only"); known && isOn(v) {
		add(stores.SeverityError, "read_only is on", "no message can be handled, except by an account that may ignore it", "connect to the primary, or SET GLOBAL read_only = OFF")
	}
	var sees, replicas int
	if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM information_schema.user_privileges WHERE privilege_type = 'PROCESS'").Scan(&sees); err != nil {
		return err
	}
	if sees == 0 {
		add(stores.SeverityNote, "the account cannot see whether replicas follow", "a failover to an asynchronous replica loses commits whose messages were acked", "check once with an account that has PROCESS")
	}
	err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'").Scan(&replicas)
	if err != nil || replicas == 0 {
		return err
	}
	for _, name := range []string{"rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled"} {
		if v, known := s.variable(ctx, "GLOBAL."+name); known && isOn(v) {
			return nil
		}
	}
	add(stores.SeverityWarning, fmt.Sprintf("%d replicas follow asynchronously", replicas), "a failover to one of them loses commits whose messages were acked",
		"switch semi-synchronous replication on: SET GLOBAL rpl_semi_sync_source_enabled = ON on MySQL (INSTALL PLUGIN before), rpl_semi_sync_master_enabled on MariaDB, and on the replicas likewise")
	return nil
}

// lookAtTimeouts: each claim sets the bounds of its own transaction, but no bound can be longer
// than the session lives.
func (s *Store) lookAtTimeouts(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	for _, name := range []string{"wait_timeout", "net_read_timeout"} {
		var seconds int64
		if err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL."+name).Scan(&seconds); err != nil {
			return err
		}
		const short = 30
		if seconds < short {
			add(stores.SeverityWarning, fmt.Sprintf("%s is %d s", name, seconds), "the server closes connections that are in use or about to be: attempts are interrupted and made again",
				"SET GLOBAL "+name+" = 600")
		}
	}
	return nil
}

// lookAtTransactions skips accounts without the right; the finding about replicas mentions it.
func (s *Store) lookAtTransactions(ctx context.Context, x *sqlstore.Examining, add sqlstore.Adder) error {
	var seconds int64
	err := s.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, CONVERT_TZ(NOW(), @@SESSION.time_zone, 'SYSTEM'))), 0) FROM information_schema.innodb_trx").Scan(&seconds)
	if number(err) == privilegeDenied {
		return nil
	}
	if open := time.Duration(seconds) * time.Second; err == nil && open > x.Overdue {
		add(stores.SeverityWarning, fmt.Sprintf("a transaction is open for %s", open), "until it ends, deleted rows, such as purged ones, stay on disk and slow down reads",
			"find it in information_schema.innodb_trx, and end it")
	}
	return err
}

// lookAtFreePages: deleted rows leave room in the files, which later messages use.
func (s *Store) lookAtFreePages(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	rows, err := s.db.QueryContext(ctx, "SELECT table_name, COALESCE(data_free, 0), COALESCE(data_length + index_length, 0) FROM information_schema.tables WHERE table_schema = ?",
		unquoted(s.dialect.Names.Schema))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		var free, used int64
		if err := rows.Scan(&table, &free, &used); err != nil {
			return err
		}
		const many = 256 << 20
		if _, ours := s.shape().Tables[table]; ours && free > many && free > used {
			add(stores.SeverityNote, fmt.Sprintf("%d MiB of %s are free, and %d MiB are used", free>>20, table, used>>20), "the disk is not given back", "OPTIMIZE TABLE "+table+", which copies it")
		}
	}
	return errors.Join(rows.Close(), rows.Err())
}

// shapeThere reads information_schema, which shows only what the account may use.
func (s *Store) shapeThere(ctx context.Context) (sqlstore.Shape, error) {
	there := sqlstore.Shape{Tables: make(map[string][]string)}
	schema := s.dialect.Names.Schema
	text := func(from string) string {
		return "SELECT DISTINCT table_name, " + from + " WHERE table_schema = ?"
	}
	err := s.pairs(ctx, text("column_name FROM information_schema.columns"), unquoted(schema), func(table, column string) {
		there.Tables[table] = append(there.Tables[table], column)
	})
	if err != nil {
		return there, err
	}
	err = s.pairs(ctx, text("index_name FROM information_schema.statistics"), unquoted(schema), func(_, index string) {
		there.Indexes = append(there.Indexes, index)
	})
	for table, is := range there.Tables { // columns that the account may not read are missing
		for _, column := range s.shape().Tables[table] {
			if !slices.Contains(is, column) && isDenied(s.explains(ctx, "SELECT", s.dialect.Names.Schema+"."+table, []string{column})) {
				there.Tables[table] = append(there.Tables[table], column)
			}
		}
	}
	return there, err
}

func isDenied(err error) bool {
	n := number(err)
	return n == tableDenied || n == columnDenied
}

func unquoted(schema string) string { return strings.ReplaceAll(strings.Trim(schema, "`"), "``", "`") }

func (s *Store) shape() sqlstore.Shape { return sqlstore.ShapeOf(s.Migrations()) }

func (s *Store) pairs(ctx context.Context, text, schema string, f func(a, b string)) error {
	rows, err := s.db.QueryContext(ctx, text, schema)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var a, b string
		if err := rows.Scan(&a, &b); err != nil {
			return err
		}
		f(a, b)
	}
	return errors.Join(rows.Close(), rows.Err())
}

// Grants implements stores.Granter. A role must be granted to an account, and be its default.
func (s *Store) Grants(r stores.Role) []string {
	role := s.names.Prefix + string(r)
	statements := []string{"CREATE ROLE IF NOT EXISTS " + role}
	scope := "*"
	if s.names.Schema != "" {
		scope = s.names.Schema + ".*"
	}
	if r == stores.RoleMigrator {
		return append(statements, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON %s TO %s", scope, role))
	}
	for _, right := range s.tables.RightsOf(r, s.names) {
		statements = append(statements, fmt.Sprintf("GRANT %s ON %s TO %s", right, s.names.Expand("{schema.}")+right.Table, role))
	}
	if r == stores.RoleRuntime { // without their names, because MariaDB has none of the procedures
		statements = append(statements, fmt.Sprintf("GRANT EXECUTE ON %s TO %s", scope, role))
	}
	return statements
}

// lookAtGrants asks the server to explain, not to run, one statement for each right.
func (s *Store) lookAtGrants(ctx context.Context, x *sqlstore.Examining, add sqlstore.Adder) error {
	var missing []string
	for _, right := range s.tables.RightsOf(x.Role, s.names) {
		columns := right.Columns
		if columns == nil {
			columns = s.shape().Tables[right.Table]
		}
		table := s.dialect.Names.Schema + "." + right.Table
		for _, privilege := range right.Privileges {
			err := s.explains(ctx, privilege, table, columns)
			switch { // other errors are about the statement, and come after the check of rights
			case isDenied(err):
				missing = append(missing, privilege+" on "+right.Table)
			case err != nil && number(err) == 0:
				return err
			}
		}
	}
	if len(missing) > 0 {
		add(stores.SeverityWarning, "the account lacks "+strings.Join(missing, ", "), fmt.Sprintf("the role %s needs it", x.Role), "GRANT it, as millpond roles prints it")
	}
	if x.Role == stores.RoleMigrator {
		return nil
	}
	var wide bool
	rows, err := s.db.QueryContext(ctx, "SHOW GRANTS")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var grant string
		if err := rows.Scan(&grant); err != nil {
			return err
		}
		wide = wide || drops.MatchString(grant)
	}
	if wide {
		add(stores.SeverityNote, "the account may change and drop tables", fmt.Sprintf("the role %s does not need it", x.Role), "use an account with the role that millpond roles prints")
	}
	return errors.Join(rows.Close(), rows.Err())
}

// drops matches rights that allow dropping. It stops before the password that SHOW GRANTS may
// print.
var drops = regexp.MustCompile(`^GRANT [^'"]*\b(ALL PRIVILEGES|DROP|ALTER)\b`)

func (s *Store) explains(ctx context.Context, privilege, table string, columns []string) error {
	quoted := "`" + strings.Join(columns, "`, `") + "`"
	first := "`" + columns[0] + "`"
	statement := map[string]string{
		"SELECT": "SELECT " + quoted + " FROM " + table + " WHERE FALSE",
		"INSERT": "INSERT INTO " + table + " (" + first + ") SELECT NULL FROM DUAL WHERE FALSE",
		"UPDATE": "UPDATE " + table + " SET " + first + " = NULL WHERE FALSE",
		"DELETE": "DELETE FROM " + table + " WHERE FALSE",
	}[privilege]
	_, err := s.db.ExecContext(ctx, "EXPLAIN "+statement)
	return err
}
