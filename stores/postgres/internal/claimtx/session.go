package claimtx

import (
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// A connection whose session may have been changed serves no other message: another
// consumer's commits would be as durable, or as read-only, as this one's handler has asked
// for. Settings of the transaction (SET LOCAL) end with it and change nothing.

// isSession reports whether a statement that begins with these words may change the
// session.
func isSession(first, second string) bool {
	switch strings.ToUpper(first) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "VALUES", "TABLE", "COPY", "EXPLAIN", "SHOW",
		"SAVEPOINT", "RELEASE", "ROLLBACK", "LOCK", "DECLARE", "FETCH", "MOVE", "CLOSE", "NOTIFY", "CALL", "EXECUTE",
		"CREATE", "ALTER", "DROP", "TRUNCATE", "COMMENT", "GRANT", "REVOKE", "REASSIGN", "SECURITY", "IMPORT",
		"ANALYZE", "ANALYSE", "REFRESH", "REINDEX", "CLUSTER", "CHECKPOINT":
		return false // but for what see finds in it
	case "SET":
		switch strings.ToUpper(second) {
		case "LOCAL", "TRANSACTION", "CONSTRAINTS":
			return false
		}
	}
	return true // SET, RESET, PREPARE, DEALLOCATE, DISCARD, LISTEN, UNLISTEN, LOAD, DO, and what is not known
}

// see looks for a word in the middle of a statement that marks the session: a setting, a
// lock of the session, a temporary table, a cursor that outlives its transaction.
func (s *scanner) see(word string) {
	s.seeName(word)
	switch word[0] | 0x20 { // most words end here
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

// seeName is see of what is a name, in quotes or not. What a temporary schema is named for
// is not asked.
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

// makesTemporary reports whether the word TEMP is the one of CREATE TEMP TABLE, or of
// SELECT … INTO TEMP, and not somebody's column.
func (s *scanner) makesTemporary() bool {
	switch strings.ToUpper(s.before) {
	case "CREATE", "REPLACE", "GLOBAL", "LOCAL":
		return true
	case "INTO":
		return !strings.EqualFold(s.first, "INSERT")
	}
	return false
}

// dropsOnCommit reads the rest of a statement that makes a temporary table.
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

// setsLocally reads the arguments of set_config: the third one, if it is written out as
// true, keeps the setting to the transaction.
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

// reported are settings that the server tells of without being asked (search_path does so
// from version 18 on). They show what no text does: a function that sets one.
var reported = [...]string{
	"default_transaction_read_only", "session_authorization", "is_superuser", "search_path",
	"standard_conforming_strings", "client_encoding", "TimeZone", "DateStyle", "IntervalStyle",
}

// Session tells, by the texts of statements and by what the server reports, whether a
// session has been changed. A handler may use it at several places at once.
type Session struct {
	before  [len(reported)]string
	marked  atomic.Bool // by a statement, perhaps
	strayed atomic.Bool // the search_path of the transaction may have been set
}

// Begin notes how the session is before a handler has it.
func (s *Session) Begin(pg *pgconn.PgConn) {
	for i, name := range reported {
		s.before[i] = pg.ParameterStatus(name)
	}
}

// read notes what a statement shows. A single word is the name of a prepared one, which was
// read before. What is made where the search_path says that the handler has set may belong
// to the session: pg_temp may be first in it.
func (s *Session) read(r Reading, word bool) {
	if r.Path {
		s.strayed.Store(true)
	}
	if r.Session && !word || r.Creates && s.strayed.Load() {
		s.marked.Store(true)
	}
}

// Changed is asked when the transaction is over.
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
