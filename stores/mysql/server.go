package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// server is what a store knows about its server.
type server struct {
	kind

	procedures bool // millpond's procedures exist, on MySQL
	emits      bool // also the newer one for outputs
	batches    bool // also those for batches
	maxPacket  int  // in bytes
	maxEntry   int  // the most bytes of a row's content; 0: no limit
	unordered  bool // numbers may not follow the order of commits
	galera     bool // a member of a Galera cluster
	noEscapes  bool // a backslash in quotes is an ordinary character
}

// learn asks the server once for what the store needs to know. It runs before the first consumer is
// registered, and so before anything else, and again when the server may be another one.
func (s *Store) learn(ctx context.Context, again bool) error {
	s.learning.Lock()
	defer s.learning.Unlock()
	if s.dialect != nil && !again {
		return nil
	}
	sv, schema, err := s.ask(ctx)
	if err != nil {
		return err
	}
	s.warn(ctx, sv)
	if before := s.texts(); before != nil {
		if before.kind != sv.kind {
			return fmt.Errorf("%w: it was %s, and is %s now: restart the program", sqlstore.ErrUnusable, before.name(), sv.name())
		}
		s.dialect.Unordered.Store(sv.unordered)
		s.current.Store(newTexts(s.dialect, sv, s.config.Isolation))
		return nil
	}
	names := sqlstore.Names{Schema: "`" + strings.ReplaceAll(schema, "`", "``") + "`", Prefix: s.names.Prefix}
	if !s.config.AnyServer {
		if err := s.prove(ctx, names, sv); err != nil {
			return err
		}
	}
	s.dialect = newDialect(names, sv.kind)
	s.dialect.Unordered.Store(sv.unordered)
	s.sql = newStatements(s.dialect)
	s.current.Store(newTexts(s.dialect, sv, s.config.Isolation))
	return nil
}

// ask asks the server what it is, and refuses one on which the store cannot keep its promises.
// schema is the database with the tables. Table names are qualified with it, because a handler may
// select another database.
func (s *Store) ask(ctx context.Context) (sv server, schema string, err error) {
	var (
		version, comment, charset, into, chain, mode string
		database                                     sql.NullString
		commits                                      bool
		step                                         int
	)
	err = s.db.QueryRowContext(ctx, "SELECT VERSION(), @@version_comment, DATABASE(), @@max_allowed_packet, @@SESSION.autocommit, @@SESSION.character_set_client, @@SESSION.character_set_connection, @@SESSION.completion_type, @@SESSION.sql_mode, @@SESSION.auto_increment_increment").
		Scan(&version, &comment, &database, &sv.maxPacket, &commits, &charset, &into, &chain, &mode, &step)
	if err != nil {
		return sv, "", err
	}
	if !commits {
		return sv, "", fmt.Errorf("%w: the connections have autocommit off, so changes outside transactions stay locked and are lost: add autocommit=1 to the parameters", sqlstore.ErrUnusable)
	}
	if err := writable(chain, mode); err != nil {
		return sv, "", err
	}
	sv.noEscapes = strings.Contains(mode, "NO_BACKSLASH_ESCAPES")
	if unsafeCharsets[charset] {
		return sv, "", fmt.Errorf("%w: the connections have the character set %s, in which the driver cannot quote text safely: use utf8mb4", sqlstore.ErrUnusable, charset)
	}
	if charset != into {
		return sv, "", fmt.Errorf("%w: the connections have the character_set_client %s and the character_set_connection %s, so the server converts payloads: set both by charset=utf8mb4 or SET NAMES", sqlstore.ErrUnusable, charset, into)
	}
	if sv.kind, err = s.supported(version, comment); err != nil && !s.config.AnyServer {
		return sv, "", err
	}
	galera, _ := s.variable(ctx, "GLOBAL.wsrep_on")
	sv.galera = isOn(galera)
	sv.unordered = step != 1 || sv.galera // several servers draw numbers
	if schema = s.names.Schema; schema == "" {
		schema = database.String
	}
	if schema == "" {
		return sv, "", fmt.Errorf("%w: no database is selected: name one in the address, or in Config.Schema", sqlstore.ErrUnusable)
	}
	if sv.tidb {
		sv.maxEntry = usualEntry
		if v, known := s.variable(ctx, "SESSION.tidb_txn_entry_size_limit"); known && v != "0" {
			sv.maxEntry, _ = strconv.Atoi(v)
		}
		sv.maxEntry -= 8 * slack
		sv.unordered, err = s.drawsBlocks(ctx, schema)
	}
	if sv.callable() {
		err = s.lookForProcedures(ctx, &sv, schema)
	}
	return sv, schema, err
}

// usualEntry is TiDB's default limit for a row.
const usualEntry = 6 << 20

// drawsBlocks reports whether each TiDB server draws numbers from its own block, because the tables
// were created without the option that the migrations use.
func (s *Store) drawsBlocks(ctx context.Context, schema string) (bool, error) {
	var table, made string
	err := s.db.QueryRowContext(ctx, fmt.Sprintf("SHOW CREATE TABLE `%s`.%soutbox", strings.ReplaceAll(schema, "`", "``"), s.names.Prefix)).Scan(&table, &made)
	return !strings.Contains(made, "AUTO_ID_CACHE=1 "), err
}

// lookForProcedures notes which of the procedures exist.
func (s *Store) lookForProcedures(ctx context.Context, sv *server, schema string) error {
	there := make(map[string]bool)
	rows, err := s.db.QueryContext(ctx, "SELECT routine_name FROM information_schema.routines WHERE routine_schema = ? AND routine_comment LIKE 'millpond 1:%'", schema)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		there[name] = true
	}
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !there[s.names.Prefix+name] })
	}
	sv.procedures = has("begin", "complete", "look")
	sv.emits = sv.procedures && has("emit_complete")
	sv.batches = sv.procedures && has("batch_claim", "batch_complete")
	return errors.Join(rows.Close(), rows.Err())
}

// cannotCall reports whether one of the store's procedures is gone or denied. From then on the
// store works without it: messages take more round trips, but none fails.
func (s *Store) cannotCall(ctx context.Context, err error) bool {
	if n := number(err); n != noSuchRoutine && n != routineDenied {
		return false
	}
	at := slices.IndexFunc(procedureNames, func(name string) bool { return strings.Contains(err.Error(), s.names.Prefix+name) })
	if at < 0 {
		return false
	}
	before := s.texts()
	sv := before.server
	switch procedureNames[at] {
	case "emit_complete":
		sv.emits = false
	case "batch_claim", "batch_complete":
		sv.batches = false
	default:
		sv.procedures, sv.emits, sv.batches = false, false, false
	}
	if sv != before.server && s.current.CompareAndSwap(before, newTexts(s.dialect, sv, s.config.Isolation)) {
		without := s.withoutProcedures(sv)
		s.log.WarnContext(ctx, "millpond: mysql: a procedure cannot be called: "+without.why, slog.Any("error", err), slog.String(without.toDo, without.with))
	}
	return true
}

// writable refuses settings of connections with which the store's statements cannot work.
func writable(completion, mode string) error {
	if completion != "NO_CHAIN" {
		return fmt.Errorf("%w: the connections have the completion_type %s, with which COMMIT does more than commit: add completion_type=0 to the parameters", sqlstore.ErrUnusable, completion)
	}
	if strings.Contains(mode, "EMPTY_STRING_IS_NULL") {
		return fmt.Errorf("%w: the connections have EMPTY_STRING_IS_NULL in their sql_mode, so no failure can be recorded: set a sql_mode without it in the parameters", sqlstore.ErrUnusable)
	}
	return nil
}

// unsafeCharsets have characters whose second byte is a backslash or a quote. If the driver puts
// such a value into a statement's text, its rest would be SQL.
var unsafeCharsets = map[string]bool{"big5": true, "cp932": true, "gb18030": true, "gbk": true, "sjis": true}

func (s *Store) hasLearnt() bool {
	s.learning.Lock()
	defer s.learning.Unlock()
	return s.dialect != nil
}

// usualPayload is the inbox's default limit for payloads.
const usualPayload = 16 << 20

// weakness is a setting that weakens the server's promises.
type weakness struct {
	check          string
	severity       stores.Severity
	setting, value string
	why            string
	toDo, with     string // the fix, as words for the log
	fix            string // the fix as a statement; empty: SET GLOBAL setting = with
}

func (w weakness) finding() stores.Finding {
	fix := w.fix
	if fix == "" {
		fix = fmt.Sprintf("SET GLOBAL %s = %s, and in the server's configuration", w.setting, w.with)
	}
	return stores.Finding{Check: w.check, Severity: w.severity, What: w.setting + " is " + w.value, Why: w.why, Fix: fix}
}

// warn logs settings that weaken the server's promises, unless it logged the same before.
func (s *Store) warn(ctx context.Context, sv server) {
	found := s.weaknesses(ctx, sv)
	if slices.Equal(found, s.warned) {
		return
	}
	s.warned = found
	for _, w := range found {
		s.log.WarnContext(ctx, "millpond: mysql: "+w.why, slog.String(w.setting, w.value), slog.String(w.toDo, w.with))
	}
}

// variable reads a system variable if it exists and the account may read it.
func (s *Store) variable(ctx context.Context, name string) (value string, known bool) {
	err := s.db.QueryRowContext(ctx, "SELECT @@"+name).Scan(&value)
	return value, err == nil
}

// weaknesses skips settings that cannot be read.
func (s *Store) weaknesses(ctx context.Context, sv server) (found []weakness) {
	add := func(w weakness) { found = append(found, w) }
	strict := func() {
		if v, known := s.variable(ctx, "SESSION.sql_mode"); known && !strings.Contains(v, "STRICT_TRANS_TABLES") && !strings.Contains(v, "STRICT_ALL_TABLES") {
			add(weakness{
				"session", stores.SeverityWarning, "sql_mode", v, "a value that does not fit a handler's column is cut or changed without an error", "add to it", "STRICT_TRANS_TABLES",
				"SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES')",
			})
		}
	}
	if sv.tidb { // the variables below have no effect there
		add(weakness{
			"server", stores.SeverityNote, "version", "TiDB", "the store on TiDB is a preview: crashes of TiKV and several servers are untested",
			"see", "docs/stores.md", "see TiDB in docs/stores.md",
		})
		strict()
		return found
	}
	if sv.galera {
		add(weakness{
			"server", stores.SeverityWarning, "wsrep_on", "ON", "the server is a member of a Galera cluster, which lacks locks between its members: two of them accept writes to one key until COMMIT, and two handlers may run",
			"let all processes write to", "one member", "let all processes write to one member, and set wsrep_sync_wait and innodb_flush_log_at_trx_commit to 1",
		})
	}
	if v, known := s.variable(ctx, "GLOBAL.innodb_flush_log_at_trx_commit"); known && v != "1" {
		add(weakness{"durability", stores.SeverityWarning, "innodb_flush_log_at_trx_commit", v, "a crash of the server can lose messages that were acked", "set it to", "1", ""})
	}
	switch v, _ := s.variable(ctx, "GLOBAL.log_bin"); v {
	case "0", "OFF":
		add(weakness{
			"durability", stores.SeverityWarning, "log_bin", v, "the server shows commits to others before they are on its disk: after a crash, messages that were acked as duplicates of such a commit can be lost",
			"switch it on", "log_bin", "log_bin in the server's configuration, and a restart",
		})
	case "1", "ON":
		if v, known := s.variable(ctx, "GLOBAL.sync_binlog"); known && v != "1" {
			add(weakness{"durability", stores.SeverityWarning, "sync_binlog", v, "after a crash of the server's machine, replicas and the server can differ in which messages are completed", "set it to", "1", ""})
		}
	}
	strict()
	if sv.maxPacket <= usualPayload+slack {
		add(weakness{"limits", stores.SeverityNote, "max_allowed_packet", strconv.Itoa(sv.maxPacket), "larger messages cannot be kept when they fail or go to quarantine", "set it to at least", strconv.Itoa(64 << 20), ""})
	}
	if v, known := s.variable(ctx, "GLOBAL.max_connections"); known {
		if most, err := strconv.Atoi(v); err == nil && s.pool().Max > most {
			add(weakness{
				"limits", stores.SeverityWarning, "max_connections", v, "the pool may open more connections than the server admits: a refused attempt waits for another one's",
				"lower", fmt.Sprintf("%s, which is %d", s.pool().Setting, s.pool().Max), fmt.Sprintf("lower %s, which is %d", s.pool().Setting, s.pool().Max),
			})
		}
	}
	if sv.callable() && (!sv.emits || s.own && !sv.batches) {
		add(s.withoutProcedures(sv))
	}
	return found
}

// withoutProcedures says what missing procedures cost.
func (s *Store) withoutProcedures(sv server) weakness {
	missing, costs := procedureNames, "each message takes more round trips"
	switch {
	case sv.procedures && sv.emits:
		missing, costs = procedureNames[4:], "no messages share transactions"
	case sv.procedures && (sv.batches || !s.own):
		missing, costs = procedureNames[3:4], "each message with an output takes one more round trip"
	case sv.procedures:
		missing, costs = procedureNames[3:], "each message with an output takes one more round trip, and none share transactions"
	}
	names := s.names.Prefix + strings.Join(missing, ", "+s.names.Prefix)
	return weakness{
		"procedures", stores.SeverityNote, "procedures", "missing", costs,
		"call Migrate with an account that has CREATE ROUTINE, and grant EXECUTE on", names, "millpond migrate up by an account that has CREATE ROUTINE, and GRANT EXECUTE on " + names,
	}
}
