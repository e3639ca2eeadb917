package claimtx

import (
	"strings"
	"sync"
)

// Reading says what the text of a statement does.
type Reading struct {
	Control bool // would begin or end a transaction; savepoints do not count
	Several bool // has, or may have, several statements, which the simple protocol allows
	Session bool // changes, or may change, the session beyond the transaction
	Path    bool // sets, or may set, the transaction's search_path
	Creates bool // creates an object, perhaps where that search_path says
	Rows    bool // only reads and writes rows, judging by its words
	Copy    bool // is COPY, whose rows the driver does not expect among several statements

	Unshared string // what in it prevents sharing its transaction with other messages, without values; "": nothing
}

// Read reads SQL text. It knows comments, quotes and dollar quotes. Text that it cannot read with
// certainty counts as several statements that change the session.
//
// It keeps honest mistakes from causing partial commits and from affecting other messages. What
// slips through is caught at the commit, which proves whose transaction it is. Session changes by
// code inside the server are not seen.
//
// Handlers send the same texts again and again, so it remembers some.
func Read(sql string) Reading {
	if len(sql) > longestKnown {
		return read(sql)
	}
	known.mu.RLock()
	r, ok := known.readings[sql]
	known.mu.RUnlock()
	if ok {
		return r
	}
	r = read(sql)
	known.mu.Lock()
	defer known.mu.Unlock()
	if len(known.readings) >= mostKnown {
		clear(known.readings) // texts with values in them never come again
	}
	known.readings[sql] = r
	return r
}

// Bounds of what Read remembers: a megabyte at most.
const (
	mostKnown    = 512
	longestKnown = 2048
)

var known = struct {
	mu       sync.RWMutex
	readings map[string]Reading
}{readings: make(map[string]Reading)}

func read(sql string) Reading {
	var (
		s          = scanner{rest: sql}
		r          Reading
		statements int
		rows       = true
	)
	for {
		more := s.statement()
		if s.first != "" {
			statements++
			r.Control = r.Control || isControl(s.first, s.second)
			r.Session = r.Session || s.marks || isSession(s.first, s.second)
			r.Path = r.Path || s.path
			r.Creates = r.Creates || s.creates || strings.EqualFold(s.first, "CREATE")
			rows = rows && isRows(s.first)
			r.Copy = r.Copy || strings.EqualFold(s.first, "COPY")
		}
		if !more {
			r.Several = statements > 1 || s.unsure || s.lost
			r.Session = r.Session || s.lost
			r.Rows = rows && !(r.Control || r.Several || r.Session || r.Path || r.Creates)
			r.Unshared = unshared(sql, r)
			return r
		}
	}
}

func isControl(first, second string) bool {
	switch strings.ToUpper(first) {
	case "BEGIN", "COMMIT", "END", "ABORT":
		return true
	case "START", "PREPARE":
		return strings.EqualFold(second, "TRANSACTION")
	case "ROLLBACK":
		return !strings.EqualFold(second, "TO")
	}
	return false
}

// scanner walks over SQL text one statement at a time.
type scanner struct {
	rest   string
	unsure bool // a quote may have ended elsewhere
	lost   bool // a quote or comment did not end

	// About the statement: its first two words (ROLLBACK TO without WORK or TRANSACTION), the
	// previous word, whether it changes the session, and Reading's Path and Creates.
	first, second, before string
	marks, path, creates  bool

	routine bool // it creates a function or procedure
	body    int  // depth of BEGIN ATOMIC … END, and of CASE … END in it
}

// statement reads one statement with its semicolon, and reports whether there is more.
func (s *scanner) statement() (more bool) {
	*s = scanner{rest: s.rest, unsure: s.unsure, lost: s.lost}
	for s.rest != "" {
		switch c := s.rest[0]; {
		case c == ';' && s.body == 0:
			s.rest = s.rest[1:]
			return true
		case isWordByte(c):
			word := s.word()
			switch {
			case s.first == "":
				s.first = word
			case strings.EqualFold(s.first, "ROLLBACK") && (strings.EqualFold(word, "WORK") || strings.EqualFold(word, "TRANSACTION")):
			case s.second == "":
				s.second = word
			}
			s.see(word)
			s.nest(word)
			s.before = word
		default:
			s.skip()
		}
	}
	return false
}

// nest follows the body of a routine in standard SQL, which has its own statements and END. A label
// may be named like a keyword, so where the body ends is not certain.
func (s *scanner) nest(word string) {
	switch word[0] | 0x20 {
	case 'f', 'p':
		if strings.EqualFold(word, "FUNCTION") || strings.EqualFold(word, "PROCEDURE") {
			s.routine = s.routine || strings.EqualFold(s.first, "CREATE") && (strings.EqualFold(s.before, "CREATE") || strings.EqualFold(s.before, "REPLACE"))
		}
	case 'a':
		if s.routine && s.body == 0 && strings.EqualFold(word, "ATOMIC") && strings.EqualFold(s.before, "BEGIN") {
			s.body, s.unsure = 1, true
		}
	case 'c':
		if s.body > 0 && strings.EqualFold(word, "CASE") && !strings.EqualFold(s.before, "AS") {
			s.body++
		}
	case 'e':
		if s.body > 0 && strings.EqualFold(word, "END") && !strings.EqualFold(s.before, "AS") {
			s.body--
		}
	}
}

// skip skips everything except words and the end of a statement.
func (s *scanner) skip() {
	switch c := s.rest[0]; {
	case c == '\'':
		s.skipQuoted(c)
	case c == '"':
		quoted := s.rest
		s.skipQuoted(c)
		s.seeName(strings.Trim(quoted[:len(quoted)-len(s.rest)], `"`))
		s.before = "" // not a keyword
	case strings.HasPrefix(s.rest, "--"):
		s.skipLine()
	case strings.HasPrefix(s.rest, "/*"):
		s.skipComment()
	case c == '$':
		s.skipDollarQuoted()
	default:
		s.rest = s.rest[1:]
	}
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

func (s *scanner) word() string {
	n := 0
	number := '0' <= s.rest[0] && s.rest[0] <= '9' // numbers contain no $
	for n < len(s.rest) && (isWordByte(s.rest[n]) || s.rest[n] == '$' && !number) {
		n++
	}
	word := s.rest[:n]
	s.rest = s.rest[n:]
	// E'…' strings have backslash escapes.
	if strings.EqualFold(word, "e") && strings.HasPrefix(s.rest, "'") {
		s.skipEscaped()
	}
	// Escapes in a U&"…" name may spell any name.
	if strings.EqualFold(word, "u") && strings.HasPrefix(s.rest, `&"`) {
		s.marks = true
	}
	return word
}

// skipLine skips a comment, which either kind of line break ends.
func (s *scanner) skipLine() {
	i := strings.IndexAny(s.rest, "\r\n")
	if i < 0 {
		s.rest = ""
		return
	}
	s.rest = s.rest[i+1:]
}

// skipQuoted may ignore doubled quotes: they read as two strings. A backslash escapes if
// standard_conforming_strings is off, and in a continuation of an E'…' string on another line.
func (s *scanner) skipQuoted(quote byte) {
	i := strings.IndexByte(s.rest[1:], quote)
	if i < 0 {
		s.rest, s.lost = "", true
		return
	}
	if quote == '\'' && strings.IndexByte(s.rest[:i+1], '\\') >= 0 {
		s.unsure = true
	}
	s.rest = s.rest[i+2:]
}

func (s *scanner) skipEscaped() {
	for i := 1; i < len(s.rest); i++ {
		switch s.rest[i] {
		case '\\':
			i++
		case '\'':
			s.rest = s.rest[i+1:]
			return
		}
	}
	s.rest, s.lost = "", true
}

// skipComment skips a block comment; they nest.
func (s *scanner) skipComment() {
	depth := 0
	for i := 0; i+1 < len(s.rest); i++ {
		switch s.rest[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				s.rest = s.rest[i+1:]
				return
			}
		}
	}
	s.rest, s.lost = "", true
}

// skipDollarQuoted skips $tag$ … $tag$, or the dollar of a parameter such as $1.
func (s *scanner) skipDollarQuoted() {
	tag, ok := dollarTag(s.rest)
	if !ok {
		s.rest = s.rest[1:]
		return
	}
	i := strings.Index(s.rest[len(tag):], tag)
	if i < 0 {
		s.rest, s.lost = "", true
		return
	}
	s.rest = s.rest[i+2*len(tag):]
}

func dollarTag(s string) (string, bool) {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '$':
			return s[:i+1], true
		case !isWordByte(s[i]) || i == 1 && '0' <= s[i] && s[i] <= '9':
			return "", false
		}
	}
	return "", false
}

// isWord reports whether the text is one word.
func isWord(sql string) bool { return !strings.ContainsAny(sql, " \t\r\n") }
