package tables

import (
	"context"
	"fmt"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Examine implements stores.Examiner.
func (s Store) Examine(ctx context.Context, e stores.Examination) ([]stores.Finding, error) {
	t := s.t
	return t.shared.Examine(ctx, e, sqlstore.Looks{
		Server: []sqlstore.Look{
			{Check: "durability", At: t.lookAtDurability},
			{Check: "replicas", At: t.lookAtReplicas},
			{Check: "isolation", At: t.lookAtIsolation},
			{Check: "timeouts", At: t.lookAtTimeouts},
			{Check: "vacuum", At: t.lookAtVacuum},
		},
		Tables: []sqlstore.Look{{Check: "server", At: t.lookAtServer}, {Check: "grants", At: t.lookAtGrants}, {Check: "bloat", At: t.lookAtBloat}},
		Shape:  t.shapeThere,
	})
}

// setting returns a setting of the session, or "" if the server does not know it.
func (t *Tables) setting(ctx context.Context, name string) (value string, err error) {
	err = t.read(ctx, "SELECT coalesce(current_setting($1::text, true), '')", []any{name}, &value)
	return value, err
}

func (t *Tables) read(ctx context.Context, text string, args []any, into ...any) error {
	found := false
	_, err := t.db.Send(ctx, Statement{Text: qualify(text), Args: args, Read: first(&found, into...)})
	return err
}

// alter returns the statement that changes a setting of the server.
func alter(name, value string) string {
	return fmt.Sprintf("ALTER SYSTEM SET %s = %s; SELECT pg_reload_conf()", name, value)
}

func (t *Tables) lookAtDurability(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	var d durability
	if err := t.read(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')", nil,
		&d.fsync, &d.synchronousCommit, &d.fullPageWrites); err != nil {
		return err
	}
	for _, w := range d.weaknesses() {
		fix := alter(w.setting, "on")
		if w.setting == "synchronous_commit" {
			fix += ", and ALTER ROLE or ALTER DATABASE … RESET synchronous_commit where it is set for one of them"
		}
		add(stores.SeverityWarning, w.setting+" is "+w.value, w.why, fix)
	}
	return nil
}

func (t *Tables) lookAtReplicas(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	var standby bool
	var replicas int64
	var commit, names string
	err := t.read(ctx, `SELECT pg_is_in_recovery(), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
(SELECT count(*) FROM pg_catalog.pg_stat_replication WHERE coalesce(state, '') <> 'backup')`, nil, &standby, &commit, &names, &replicas)
	switch {
	case err != nil:
		return err
	case standby:
		add(stores.SeverityError, "the server is a standby", "it cannot write, so no message can be handled", "connect to the primary, as with target_session_attrs=read-write in the URL")
	case replicas > 0 && names == "":
		add(stores.SeverityWarning, fmt.Sprintf("%d replicas follow asynchronously (synchronous_standby_names is empty)", replicas),
			"a failover to one of them loses commits whose messages were acked", alter("synchronous_standby_names", "'ANY 1 (*)'"))
	case names != "" && (commit == "local" || commit == "off"):
		add(stores.SeverityWarning, "synchronous_standby_names is set, and synchronous_commit is "+commit,
			"commits do not wait for a replica: a failover loses commits whose messages were acked", alter("synchronous_commit", "on"))
	}
	return nil
}

func (t *Tables) lookAtIsolation(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	var isolation, readOnly string
	if err := t.read(ctx, "SELECT current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only')", nil, &isolation, &readOnly); err != nil {
		return err
	}
	if readOnly == "on" {
		add(stores.SeverityError, "default_transaction_read_only is on", "no message can be handled", "ALTER DATABASE or ALTER ROLE … SET default_transaction_read_only = off")
	}
	if isolation != "read committed" {
		add(stores.SeverityNote, "default_transaction_isolation is "+isolation, "handlers run as the store is configured; the program's other work meets serialization failures",
			"ALTER DATABASE … SET default_transaction_isolation = 'read committed'")
	}
	return nil
}

// lookAtTimeouts checks the server's timeouts. Each claim sets the bounds of its own transaction:
// see serverLimits.
func (t *Tables) lookAtTimeouts(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	for _, s := range []struct {
		name, least string // least: how the setting reads when it is off
		severity    stores.Severity
		off         bool // true: it should be off; false: on
		why, fix    string
	}{
		{"client_connection_check_interval", "0", stores.SeverityNote, false, "a dead process's statement runs to its end, and holds its key until then", "10s"},
		{"tcp_keepalives_idle", "0", stores.SeverityNote, false, "a connection to a machine that is gone stays open for hours", "60"},
		{"transaction_timeout", "0", stores.SeverityWarning, true, "the server may end a handler's transaction before the handler's own timeout", "0"},
	} {
		value, err := t.setting(ctx, s.name)
		if err != nil {
			return err
		}
		if unset := value == s.least; value != "" && unset != s.off && (s.off || unset) {
			add(s.severity, s.name+" is "+value, s.why, alter(s.name, "'"+s.fix+"'"))
		}
	}
	var statement, idle int64
	if err := t.read(ctx, `SELECT (SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'),
(SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'idle_in_transaction_session_timeout')`, nil, &statement, &idle); err != nil {
		return err
	}
	const short = 1000 // milliseconds
	for name, value := range map[string]int64{"statement_timeout": statement, "idle_in_transaction_session_timeout": idle} {
		if 0 < value && value < short {
			add(stores.SeverityWarning, fmt.Sprintf("%s is %d ms", name, value), "it ends handlers that are still at work, at each attempt",
				"ALTER ROLE … SET "+name+" = '60s', or 0: each claim sets a bound of its own")
		}
	}
	return nil
}

func (t *Tables) lookAtVacuum(ctx context.Context, x *sqlstore.Examining, add sqlstore.Adder) error {
	for _, name := range []string{"autovacuum", "track_counts"} {
		value, err := t.setting(ctx, name)
		if err != nil {
			return err
		}
		if value == "off" {
			add(stores.SeverityWarning, name+" is off", "dead rows are never removed: the tables grow, and the server stops before its transaction numbers run out", alter(name, "on"))
		}
	}
	var seconds int64
	var sees bool
	if err := t.read(ctx, `SELECT coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::bigint, pg_has_role('pg_read_all_stats', 'USAGE')
FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`, nil, &seconds, &sees); err != nil {
		return err
	}
	if !sees {
		add(stores.SeverityNote, "the account cannot see the transactions of others", "one that stays open keeps dead rows from being removed", "check once with an account that is granted pg_monitor")
	}
	if float64(seconds) > x.Overdue.Seconds() {
		add(stores.SeverityWarning, fmt.Sprintf("a transaction is open for %d seconds", seconds), "meanwhile no dead row is removed, and outputs of an order key may wait for it",
			"find it by SELECT pid, state, query FROM pg_stat_activity ORDER BY xact_start; SELECT pg_terminate_backend(pid)")
	}
	return nil
}

func (t *Tables) lookAtBloat(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	return t.eachTable(ctx, func(schema, table string) error {
		var live, dead, age int64
		var options string
		if err := t.read(ctx, `SELECT coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), age(c.relfrozenxid)::bigint,
coalesce(array_to_string(c.reloptions, ','), '')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
WHERE n.nspname = $1::text AND c.relname = $2::text`, []any{schema, table}, &live, &dead, &age, &options); err != nil {
			return err
		}
		name := schema + "." + table
		if strings.Contains(options, "autovacuum_enabled=off") || strings.Contains(options, "autovacuum_enabled=false") {
			add(stores.SeverityWarning, "autovacuum is off for "+name, "its dead rows are never removed", "ALTER TABLE "+name+" RESET (autovacuum_enabled)")
		}
		const many, wraps = 10_000, 1 << 30
		if dead > many && dead > live {
			add(stores.SeverityWarning, fmt.Sprintf("%s has %d dead rows beside %d live ones", name, dead, live), "reads must skip the dead ones: no vacuum has run, or a transaction keeps it from removing them",
				"VACUUM "+name)
		}
		if age > wraps {
			add(stores.SeverityWarning, fmt.Sprintf("%s was frozen %d transactions ago", name, age), "the server stops before 2^31", "VACUUM (FREEZE) "+name)
		}
		return nil
	})
}

// eachTable calls f for the tables that the migrations create.
func (t *Tables) eachTable(ctx context.Context, f func(schema, table string) error) error {
	h, err := t.whereIs(ctx, t.db)
	if err != nil {
		return err
	}
	for _, table := range t.shape().TableNames() {
		if err := f(h.schema, table); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tables) shape() sqlstore.Shape { return sqlstore.ShapeOf(t.Store().Migrations()) }

// shapeThere reads the catalog, which every account may read.
func (t *Tables) shapeThere(ctx context.Context) (sqlstore.Shape, error) {
	there := sqlstore.Shape{Tables: make(map[string][]string)}
	err := t.eachTable(ctx, func(schema, table string) error {
		_, err := t.db.Send(ctx, Statement{Text: qualify(`SELECT a.attname::text FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = $2::text AND a.attnum > 0 AND NOT a.attisdropped`), Args: []any{schema, table}, Read: texts(func(column string) {
			there.Tables[table] = append(there.Tables[table], column)
		})})
		if err != nil {
			return err
		}
		_, err = t.db.Send(ctx, Statement{
			Text: qualify(`SELECT indexname::text FROM pg_catalog.pg_indexes WHERE schemaname = $1::text AND tablename = $2::text`),
			Args: []any{schema, table}, Read: texts(func(index string) { there.Indexes = append(there.Indexes, index) }),
		})
		return err
	})
	return there, err
}

// texts calls f with the single column of each row.
func texts(f func(string)) func(Rows) error {
	return func(rows Rows) error {
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				return err
			}
			f(text)
		}
		return rows.Err()
	}
}

// lookAtServer makes the checks that the store's start skips, and reports that it was told to skip
// them.
func (t *Tables) lookAtServer(ctx context.Context, _ *sqlstore.Examining, add sqlstore.Adder) error {
	switch {
	case t.anyServer:
		sqlstore.AnyServer(add, "PostgreSQL", t.identify(ctx), t.prove(ctx, t.dialect.Names))
	case !t.db.Spare():
		add(stores.SeverityNote, "the pool has one connection", "checking that the server's locks work takes two", "raise pool_max_conns")
	}
	return nil
}

// distributed returns the millpond tables that Citus distributes: there, unique keys and locks hold
// on one node only.
func (t *Tables) distributed(ctx context.Context) (found []string, err error) {
	var citus bool
	if err := t.read(ctx, "SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL", nil, &citus); err != nil || !citus {
		return nil, err
	}
	err = t.eachTable(ctx, func(schema, table string) error {
		var is bool
		if err := t.read(ctx, `SELECT count(*) > 0 FROM pg_catalog.pg_dist_partition p JOIN pg_catalog.pg_class c ON c.oid = p.logicalrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::text AND c.relname = $2::text AND p.partmethod <> 'n'`, []any{schema, table}, &is); err != nil {
			return err
		}
		if is {
			found = append(found, schema+"."+table)
		}
		return nil
	})
	return found, err
}
