package claimtx

import "strings"

// TransactionControl reports whether SQL text holds a statement that would begin or
// end a transaction (savepoints are not such), and whether it holds several
// statements, which the simple protocol allows. It knows comments, quotes and dollar
// quotes; text that it cannot read with certainty counts as several.
//
// It is what keeps honest mistakes from half-done commits. What may slip through is
// caught at the commit, which proves whose transaction it is.
func TransactionControl(sql string) (control, several bool) {
	s := scanner{rest: sql}
	statements := 0
	for {
		first, second, more := s.statement()
		if first != "" {
			statements++
			control = control || isControl(first, second)
		}
		if !more {
			return control, statements > 1 || s.unsure
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
	unsure bool // a quote or comment did not end, or may have ended elsewhere
}

// statement consumes one statement with its semicolon and returns its first two
// words. ROLLBACK [WORK | TRANSACTION] TO is returned as ROLLBACK TO.
func (s *scanner) statement() (first, second string, more bool) {
	for s.rest != "" {
		switch c := s.rest[0]; {
		case c == ';':
			s.rest = s.rest[1:]
			return first, second, true
		case c == '\'' || c == '"':
			s.skipQuoted(c)
		case strings.HasPrefix(s.rest, "--"):
			s.skipLine()
		case strings.HasPrefix(s.rest, "/*"):
			s.skipComment()
		case c == '$':
			s.skipDollarQuoted()
		case isWordByte(c):
			word := s.word()
			switch {
			case first == "":
				first = word
			case strings.EqualFold(first, "ROLLBACK") && (strings.EqualFold(word, "WORK") || strings.EqualFold(word, "TRANSACTION")):
			case second == "":
				second = word
			}
		default:
			s.rest = s.rest[1:]
		}
	}
	return first, second, false
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
		s.rest, s.unsure = "", true
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
	s.rest, s.unsure = "", true
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
	s.rest, s.unsure = "", true
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
		s.rest, s.unsure = "", true
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
