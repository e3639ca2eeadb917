package claimtx

import (
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// A connection whose session may have changed serves no other message: another consumer's commits
// would be as durable, or as read-only, as this handler's settings say. Settings of the transaction
// (SET LOCAL) end with it and change nothing.

// isSession reports whether a statement that begins with these words may change the session.
func isSession(first, second string) bool {
	switch strings.ToUpper(first) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "VALUES", "TABLE", "COPY", "EXPLAIN", "SHOW",
		"SAVEPOINT", "RELEASE", "ROLLBACK", "LOCK", "DECLARE", "FETCH", "MOVE", "CLOSE", "NOTIFY", "CALL", "EXECUTE",
		"CREATE", "ALTER", "DROP", "TRUNCATE", "COMMENT", "GRANT", "REVOKE", "REASSIGN", "SECURITY", "IMPORT",
		"ANALYZE", "ANALYSE", "REFRESH", "REINDEX", "CLUSTER", "CHECKPOINT":
		return false // unless see finds something
	case "SET":
		switch strings.ToUpper(second) {
		case "LOCAL", "TRANSACTION", "CONSTRAINTS":
			return false
		}
	}
	return true // SET, RESET, PREPARE, DEALLOCATE, DISCARD, LISTEN, UNLISTEN, LOAD, DO, and unknown ones
}

// see looks for words that change the session: a setting, a session lock, a temporary table, or a
// cursor that outlives its transaction.
func (s *scanner) see(word string) {
	s.seeName(word)
	switch word[0] | 0x20 { // most words return here
	case 'i':
		s.creates = s.creates || strings.EqualFold(word, "INTO") && !strings.EqualFold(s.before, "INSERT") && !strings.EqualFold(s.before, "MERGE")
	case 'h':
		s.marks = s.marks || strings.EqualFold(word, "HOLD") && strings.EqualFold(s.before, "WITH")
	case 't':
		if strings.EqualFold(word, "TEMP") || strings.EqualFold(word, "TEMPORARY") {
			s.marks = s.marks || s.makesTemporary() && !dropsOnCommit(s.rest)
		}
	}
}

// seeName is see for names, quoted or not. The temporary schema is known by its prefix.
func (s *scanner) seeName(name string) {
	if name == "" {
		return
	}
	switch name[0] | 0x20 {
	case 's':
		s.path = s.path || strings.EqualFold(name, "search_path") || strings.EqualFold(name, "set_config") ||
			strings.EqualFold(name, "schema") && strings.EqualFold(s.first, "SET")
		s.marks = s.marks || strings.EqualFold(name, "setseed") || strings.EqualFold(name, "set_config") && !setsLocally(s.rest)
	case 'p':
		s.marks = s.marks || hasPrefixFold(name, "pg_advisory_lock") || hasPrefixFold(name, "pg_try_advisory_lock") ||
			hasPrefixFold(name, "pg_temp") || strings.EqualFold(name, "pg_settings")
	}
}

// makesTemporary reports whether the word TEMP belongs to CREATE TEMP TABLE or SELECT … INTO TEMP,
// and is not a column.
func (s *scanner) makesTemporary() bool {
	switch strings.ToUpper(s.before) {
	case "CREATE", "REPLACE", "GLOBAL", "LOCAL":
		return true
	case "INTO":
		return !strings.EqualFold(s.first, "INSERT")
	}
	return false
}

// dropsOnCommit reads the rest of a statement that creates a temporary table.
func dropsOnCommit(rest string) bool {
	s := scanner{rest: rest}
	for s.rest != "" && s.rest[0] != ';' {
		if !isWordByte(s.rest[0]) {
			s.skip()
			continue
		}
		if strings.EqualFold(s.word(), "COMMIT") {
			s.rest = strings.TrimLeft(s.rest, " \t\r\n")
			return s.rest != "" && isWordByte(s.rest[0]) && strings.EqualFold(s.word(), "DROP")
		}
	}
	return false
}

// setsLocally reads the arguments of set_config. If the third one is literally true, the setting is
// the transaction's.
func setsLocally(rest string) bool {
	const isLocal = 2
	s := scanner{rest: rest}
	for depth, argument, begin := 0, 0, 0; s.rest != ""; {
		at := len(rest) - len(s.rest)
		switch c := s.rest[0]; {
		case c == '(':
			depth++
		case c == ')' && depth == 1:
			return argument == isLocal && strings.EqualFold(strings.TrimSpace(rest[begin:at]), "true")
		case c == ')':
			depth--
		case c == ',' && depth == 1:
			argument, begin = argument+1, at+1
		case c == ';':
			return false
		}
		if isWordByte(s.rest[0]) {
			s.word()
		} else {
			s.skip()
		}
	}
	return false
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// reported are settings that the server reports unasked (search_path from version 18 on). They
// reveal changes that no text shows, such as a function's.
var reported = [...]string{
	"default_transaction_read_only", "session_authorization", "is_superuser", "search_path",
	"standard_conforming_strings", "client_encoding", "TimeZone", "DateStyle", "IntervalStyle",
}

// settings are the values of reported.
type settings [len(reported)]string

// Session finds out whether a session was changed, from the texts of statements and the server's
// reports. A handler may use it concurrently.
type Session struct {
	before  *settings
	marked  atomic.Bool // a statement may have changed the session
	strayed atomic.Bool // a statement may have set the transaction's search_path
}

// Begin notes the state of the session before the handler runs.
func (s *Session) Begin(pg *pgconn.PgConn) {
	s.before = new(settings)
	for i, name := range reported {
		s.before[i] = pg.ParameterStatus(name)
	}
}

// read notes what a statement does. A single word is the name of a prepared statement, which was
// already read. If the handler has set the search_path, a new object may belong to the session:
// pg_temp may be first in the path.
func (s *Session) read(r Reading, word bool) {
	if r.Path {
		s.strayed.Store(true)
	}
	if r.Session && !word || r.Creates && s.strayed.Load() {
		s.marked.Store(true)
	}
}

// Changed reports whether the session was changed. Call it after the transaction.
func (s *Session) Changed(pg *pgconn.PgConn) bool {
	if s.marked.Load() {
		return true
	}
	for i, name := range reported {
		if s.before[i] != pg.ParameterStatus(name) {
			return true
		}
	}
	return false
}
