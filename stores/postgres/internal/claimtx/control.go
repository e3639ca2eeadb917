package claimtx

import "strings"

// Reading is what the text of a statement shows.
type Reading struct {
	Control bool // it would begin or end a transaction; savepoints are no such thing
	Several bool // it holds several statements, which the simple protocol allows, or may do so
	Session bool // it leaves its mark on the session beyond the transaction, or may do so
	Path    bool // it sets the transaction's search_path, or may do so
	Creates bool // it makes something, perhaps where that search_path says
	Rows    bool // all that it does is to read and write rows, as far as its words tell
}

// Read reads SQL text. It knows comments, quotes and dollar quotes; what it cannot read
// with certainty may hold several statements, and leave its mark.
//
// It is what keeps honest mistakes from half-done commits, and from other messages. What
// may slip through is caught at the commit, which proves whose transaction it is; what
// code that the server keeps does to its session is not seen.
func Read(sql string) Reading {
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
		}
		if !more {
			r.Several = statements > 1 || s.unsure || s.lost
			r.Session = r.Session || s.lost
			r.Rows = rows && !(r.Control || r.Several || r.Session || r.Path || r.Creates)
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

	// Of the statement: its first two words (ROLLBACK TO without WORK or TRANSACTION),
	// the word before, whether something in it leaves its mark on the session, and see Path
	// and Creates of Reading.
	first, second, before string
	marks, path, creates  bool

	routine bool // it makes a function or procedure
	body    int  // depth of BEGIN ATOMIC … END, and of CASE … END in it
}

// statement consumes one statement with its semicolon, and reports whether there is more.
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

// nest follows the body of a routine in standard SQL, whose statements and whose END are its
// own. A label may be called as a keyword is, so that its end is not certain.
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

// skip consumes what is neither a word nor the end of a statement.
func (s *scanner) skip() {
	switch c := s.rest[0]; {
	case c == '\'':
		s.skipQuoted(c)
	case c == '"':
		quoted := s.rest
		s.skipQuoted(c)
		s.seeName(strings.Trim(quoted[:len(quoted)-len(s.rest)], `"`))
		s.before = "" // no keyword
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
	number := '0' <= s.rest[0] && s.rest[0] <= '9' // has no $ in it
	for n < len(s.rest) && (isWordByte(s.rest[n]) || s.rest[n] == '$' && !number) {
		n++
	}
	word := s.rest[:n]
	s.rest = s.rest[n:]
	// E'…' strings know backslash escapes.
	if strings.EqualFold(word, "e") && strings.HasPrefix(s.rest, "'") {
		s.skipEscaped()
	}
	// Escapes in a U&"…" name may spell any.
	if strings.EqualFold(word, "u") && strings.HasPrefix(s.rest, `&"`) {
		s.marks = true
	}
	return word
}

// skipLine skips a comment, which the server ends at either line break.
func (s *scanner) skipLine() {
	i := strings.IndexAny(s.rest, "\r\n")
	if i < 0 {
		s.rest = ""
		return
	}
	s.rest = s.rest[i+1:]
}

// skipQuoted needs no care for doubled quotes: they read as two strings in a row. A
// backslash escapes where standard_conforming_strings is off, and in what continues an
// E'…' string on another line.
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

// isWord reports whether there is nothing but one word.
func isWord(sql string) bool { return !strings.ContainsAny(sql, " \t\r\n") }
