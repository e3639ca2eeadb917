package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// server is what a store needs to know of the server.
type server struct {
	maria      bool
	procedures bool // of ours, on MySQL
	maxPacket  int  // bytes
	unordered  bool // numbers are not drawn in the order of commits
	noEscapes  bool // a backslash in quotes is a character like others
}

// Oldest versions: before them there is no SKIP LOCKED.
var (
	oldestMySQL   = [2]int{8, 0}
	oldestMariaDB = [2]int{10, 6}
)

var versionNumbers = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)`)

// learn asks the server once what the store needs to know of it. It is done before
// the first consumer is registered, and so before anything else.
// It is done again when the server may be another one.
func (s *Store) learn(ctx context.Context, again bool) error {
	s.learning.Lock()
	defer s.learning.Unlock()
	if s.dialect != nil && !again {
		return nil
	}
	var (
		version  string
		comment  string
		database sql.NullString
		sv       server
		commits  bool
		charset  string
		chain    string
		mode     string
		step     int
	)
	err := s.db.QueryRowContext(ctx, "SELECT VERSION(), @@version_comment, DATABASE(), @@max_allowed_packet, @@SESSION.autocommit, @@SESSION.character_set_client, @@SESSION.completion_type, @@SESSION.sql_mode, @@SESSION.auto_increment_increment").
		Scan(&version, &comment, &database, &sv.maxPacket, &commits, &charset, &chain, &mode, &step)
	if err != nil {
		return err
	}
	if !commits {
		return fmt.Errorf("%w: the connections have autocommit off, so that what is done outside of transactions stays locked and is lost: add autocommit=1 to the parameters", sqlstore.ErrUnusable)
	}
	if err := writable(chain, mode); err != nil {
		return err
	}
	sv.noEscapes = strings.Contains(mode, "NO_BACKSLASH_ESCAPES")
	if unsafeCharsets[charset] {
		return fmt.Errorf("%w: the connections have the character set %s, in which the driver cannot put quotes around text: use utf8mb4", sqlstore.ErrUnusable, charset)
	}
	if sv.maria, err = supported(version, comment); err != nil {
		return err
	}
	sv.unordered = step != 1 // as on Galera: several servers draw numbers
	// From now on the tables are named in full: a handler may select another database.
	schema := s.names.Schema
	if schema == "" {
		schema = database.String
	}
	if schema == "" {
		return fmt.Errorf("%w: no database is selected: name one in the address, or in Config.Schema", sqlstore.ErrUnusable)
	}
	if !sv.maria {
		var n int
		err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM information_schema.routines WHERE routine_schema = ? AND routine_name IN (?, ?, ?) AND routine_comment LIKE 'millpond 1:%'",
			schema, s.names.Prefix+"begin", s.names.Prefix+"complete", s.names.Prefix+"look").Scan(&n)
		if err != nil {
			return err
		}
		sv.procedures = n == 3
	}
	s.warn(ctx, sv)
	if before := s.texts(); before != nil {
		if before.maria != sv.maria {
			return fmt.Errorf("%w: it was %s, and is %s now: restart the program", sqlstore.ErrUnusable, product(before.maria), product(sv.maria))
		}
		s.current.Store(newTexts(s.dialect, sv, s.config.Isolation))
		return nil
	}
	names := sqlstore.Names{Schema: "`" + strings.ReplaceAll(schema, "`", "``") + "`", Prefix: s.names.Prefix}
	s.dialect = newDialect(names, sv.maria)
	s.dialect.Unordered = sv.unordered
	s.sql = newStatements(s.dialect)
	s.current.Store(newTexts(s.dialect, sv, s.config.Isolation))
	return nil
}

// writable refuses the settings of connections on which what the store sends cannot run.
func writable(completion, mode string) error {
	if completion != "NO_CHAIN" {
		return fmt.Errorf("%w: the connections have the completion_type %s, with which COMMIT does more than commit: add completion_type=0 to the parameters", sqlstore.ErrUnusable, completion)
	}
	if strings.Contains(mode, "EMPTY_STRING_IS_NULL") {
		return fmt.Errorf("%w: the connections have EMPTY_STRING_IS_NULL in their sql_mode, so that no failure can be recorded: set a sql_mode without it in the parameters", sqlstore.ErrUnusable)
	}
	return nil
}

// unsafeCharsets have characters whose second byte is a backslash or a quote. Where the
// driver makes one text of a statement and its values, what follows it would be SQL.
var unsafeCharsets = map[string]bool{"big5": true, "cp932": true, "gb18030": true, "gbk": true, "sjis": true}

func (s *Store) hasLearnt() bool {
	s.learning.Lock()
	defer s.learning.Unlock()
	return s.dialect != nil
}

// supported reports whether a version is MariaDB's, and refuses those that are too old,
// and those of other servers.
func supported(version, comment string) (maria bool, err error) {
	// Percona's server, those of clouds, and proxies before either are MySQL and MariaDB.
	use := fmt.Sprintf("MySQL %d.%d or later, or MariaDB %d.%d or later", oldestMySQL[0], oldestMySQL[1], oldestMariaDB[0], oldestMariaDB[1])
	if err := sqlstore.RefuseRelatives(relatives, version+" "+comment, use); err != nil {
		return false, err
	}
	maria = isMariaDB(version)
	oldest := oldestMySQL
	if maria {
		oldest = oldestMariaDB
	}
	m := versionNumbers.FindStringSubmatch(version)
	if m == nil {
		return maria, nil // a relative of unknown numbering; what it lacks it will say itself
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return maria, fmt.Errorf("%w: it is %s %s: use %d.%d or later", sqlstore.ErrUnusable, product(maria), version, oldest[0], oldest[1])
	}
	return maria, nil
}

func product(maria bool) string {
	if maria {
		return "MariaDB"
	}
	return "MySQL"
}

func isMariaDB(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }

// usualPayload is the inbox's own limit for payloads, unless it is told another.
const usualPayload = 16 << 20

// warn says by name and number what makes the server's promises smaller than they look.
// What cannot be asked is left out.
func (s *Store) warn(ctx context.Context, sv server) {
	warning := func(text string, args ...any) { s.log.WarnContext(ctx, "millpond: mysql: "+text, args...) }
	variable := func(name string) (value string, known bool) {
		err := s.db.QueryRowContext(ctx, "SELECT @@"+name).Scan(&value)
		return value, err == nil
	}
	if v, known := variable("GLOBAL.innodb_flush_log_at_trx_commit"); known && v != "1" {
		warning("a crash of the server can lose messages that were acked", slog.String("innodb_flush_log_at_trx_commit", v), slog.String("set it to", "1"))
	}
	switch v, _ := variable("GLOBAL.log_bin"); v {
	case "0", "OFF":
		warning("the server shows commits to others before they are on its disk: after a crash, messages that were acked as duplicates of such a commit can be lost",
			slog.String("log_bin", v), slog.String("switch it on", "log_bin"))
	case "1", "ON":
		if v, known := variable("GLOBAL.sync_binlog"); known && v != "1" {
			warning("after a crash of the server's machine, replicas can have other messages completed than the server", slog.String("sync_binlog", v), slog.String("set it to", "1"))
		}
	}
	if v, known := variable("SESSION.sql_mode"); known && !strings.Contains(v, "STRICT_TRANS_TABLES") && !strings.Contains(v, "STRICT_ALL_TABLES") {
		warning("what does not fit a column of a handler's is cut or changed without an error", slog.String("sql_mode", v), slog.String("add to it", "STRICT_TRANS_TABLES"))
	}
	if sv.maxPacket <= usualPayload+slack {
		warning("larger messages cannot be kept when they fail or go to quarantine", slog.Int("max_allowed_packet", sv.maxPacket), slog.Int("set it to at least", 64<<20))
	}
	if v, known := variable("GLOBAL.max_connections"); known {
		if most, err := strconv.Atoi(v); err == nil && s.pool().Max > most {
			warning("the pool may open more connections than the server admits: who is refused waits for one of the others",
				slog.Int("max_connections", most), slog.String("lower", s.pool().Setting), slog.Int("which is", s.pool().Max))
		}
	}
	if !sv.maria && !sv.procedures {
		warning("there are no procedures of millpond's: each message takes round trips more; call Migrate with an account that has CREATE ROUTINE, and grant EXECUTE",
			slog.String("missing", s.names.Prefix+"begin, "+s.names.Prefix+"complete, "+s.names.Prefix+"look"))
	}
}
