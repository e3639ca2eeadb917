package mysql

import "strings"

// conduct is what a statement's text shows about its effect on the transaction.
type conduct uint8

const (
	plain   conduct = iota // neither ends the transaction nor changes the session
	marks                  // may change the session, and nothing else
	unclear                // may do either
	ends                   // would end the transaction
)

// judge reads the beginning of a statement. The server accepts one at a time, so nothing can hide
// behind it. This keeps honest mistakes from causing partial commits; what slips through, such as a
// procedure, the guard of the commit catches. noEscapes: sql_mode has NO_BACKSLASH_ESCAPES.
func judge(text string, noEscapes bool) conduct {
	w := words{rest: text}
	first := w.next()
	if w.versioned && judge(first, noEscapes) == plain {
		return unclear // whether this is a comment depends on the server's version
	}
	switch first {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "(", "DO":
		if marksSession(w.rest, noEscapes) {
			return marks
		}
		return plain
	case "EXPLAIN", "DESCRIBE", "DESC", "SHOW", "SAVEPOINT", "RELEASE":
		return plain
	case "ROLLBACK":
		second := w.next()
		if second == "WORK" {
			second = w.next()
		}
		switch {
		case second == "TO" && w.versioned:
			return unclear
		case second == "TO":
			return plain
		}
		return ends
	case "COMMIT", "BEGIN", "START", "XA", "END", "ALTER", "RENAME", "TRUNCATE", "GRANT", "REVOKE", "LOCK", "UNLOCK",
		"ANALYZE", "OPTIMIZE", "REPAIR", "FLUSH", "RESET", "CACHE", "INSTALL", "UNINSTALL", "IMPORT":
		return ends
	case "CREATE", "DROP": // temporary tables cause no commit, and stay in the session
		second := w.next()
		if second == "OR" {
			w.next()
			second = w.next()
		}
		if second == "TEMPORARY" {
			return unclear
		}
		return ends
	case "SET":
		if strings.Contains(strings.ToUpper(text), "AUTOCOMMIT") {
			return ends
		}
	}
	return unclear
}

// words reads SQL text word by word, in capitals. It skips comments, except those that servers
// execute: they count as text.
type words struct {
	rest      string
	versioned bool // there was a comment that only some servers execute
}

func (w *words) next() string {
	for w.rest != "" {
		switch c := w.rest[0]; {
		case c == ' ', c == '\t', c == '\n', c == '\r', c == '\f', c == '\v', c == ';', c == 0:
			w.rest = w.rest[1:]
		case comment(w.rest) > 0:
			w.rest = w.rest[comment(w.rest):]
		case strings.HasPrefix(w.rest, "/*!"), strings.HasPrefix(w.rest, "/*M!"):
			_, w.rest, _ = strings.Cut(w.rest, "!")
			w.rest = strings.TrimLeft(w.rest, "0123456789")
			w.versioned = true
		case strings.HasPrefix(w.rest, "*/"):
			w.rest = w.rest[2:]
		case isLetter(c):
			n := 1
			for n < len(w.rest) && (isLetter(w.rest[n]) || '0' <= w.rest[n] && w.rest[n] <= '9' || w.rest[n] == '_') {
				n++
			}
			word := w.rest[:n]
			w.rest = w.rest[n:]
			return strings.ToUpper(word)
		default:
			w.rest = w.rest[1:]
			return string(c)
		}
	}
	return ""
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// comment returns the length of the comment at the beginning of a text, or 0 if there is none or
// servers execute it. Two dashes begin a comment only before a space or the end.
func comment(text string) int {
	var begin string
	end := "\n"
	switch {
	case strings.HasPrefix(text, "/*!"), strings.HasPrefix(text, "/*M!"):
		return 0
	case strings.HasPrefix(text, "/*"):
		begin, end = "/*", "*/"
	case strings.HasPrefix(text, "#"):
		begin = "#"
	case text == "--", strings.HasPrefix(text, "--") && text[2] <= ' ':
		begin = "--"
	default:
		return 0
	}
	n := strings.Index(text[len(begin):], end)
	if n < 0 {
		return len(text)
	}
	return len(begin) + n + len(end)
}

// marksSession reports whether the rest of a statement has a user variable or a session lock, which
// outlive the transaction: @name, but not a system variable's @@name, or a call of GET_LOCK,
// outside quotes and comments. A false alarm costs one connection.
func marksSession(text string, noEscapes bool) bool {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case comment(text[i:]) > 0:
			i += comment(text[i:]) - 1
		case c == '\'' || c == '"' || c == '`':
			end := endOfQuoted(text, i, noEscapes)
			if c == '`' && end < len(text) && locks(text[i+1:end], text[end+1:]) {
				return true
			}
			i = end
		case c == '@' && i+1 < len(text) && text[i+1] == '@':
			i++
		case c == '@':
			return true
		case isWord(c):
			begin := i
			for i+1 < len(text) && isWord(text[i+1]) {
				i++
			}
			if locks(text[begin:i+1], text[i+1:]) {
				return true
			}
		}
	}
	return false
}

// locks reports whether a name and the text after it call GET_LOCK.
func locks(name, rest string) bool {
	if !strings.EqualFold(name, "GET_LOCK") {
		return false
	}
	w := words{rest: rest}
	return w.next() == "("
}

// isWord reports whether a byte belongs to an unquoted name.
func isWord(c byte) bool {
	return isLetter(c) || '0' <= c && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// endOfQuoted returns the end of quoted text. A doubled quote reads as two quoted texts.
func endOfQuoted(text string, begin int, noEscapes bool) int {
	quote := text[begin]
	for i := begin + 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`' && !noEscapes:
			i++
		case text[i] == quote:
			return i
		}
	}
	return len(text)
}
