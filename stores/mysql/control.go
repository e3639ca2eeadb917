package mysql

import "strings"

// conduct is what the text of a statement shows of what it may do to its transaction.
type conduct uint8

const (
	plain   conduct = iota // it can neither end the transaction nor change the session
	unclear                // it may
	ends                   // it would end the transaction
)

// judge reads the beginning of a statement: the server takes one at a time, so nothing
// can hide behind it. It keeps honest mistakes from half-done commits; what may slip
// through, such as a procedure, is caught by the guard of the commit.
func judge(text string) conduct {
	w := words{rest: text}
	first := w.next()
	if w.versioned && judge(first) == plain {
		return unclear // whether the server takes it for a comment depends on its version
	}
	switch first {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "(", "DO",
		"EXPLAIN", "DESCRIBE", "DESC", "SHOW", "SAVEPOINT", "RELEASE":
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
	case "CREATE", "DROP": // temporary tables commit nothing, and stay with the session
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

// words reads SQL text word by word, in capitals. Comments are left out, but for those
// that the servers execute, which are text like any other.
type words struct {
	rest      string
	versioned bool // there was one that only some servers execute
}

func (w *words) next() string {
	for w.rest != "" {
		switch c := w.rest[0]; {
		case c == ' ', c == '\t', c == '\n', c == '\r', c == '\f', c == '\v', c == ';', c == 0:
			w.rest = w.rest[1:]
		case c == '#', strings.HasPrefix(w.rest, "--"):
			_, w.rest, _ = strings.Cut(w.rest, "\n")
		case strings.HasPrefix(w.rest, "/*!"), strings.HasPrefix(w.rest, "/*M!"):
			_, w.rest, _ = strings.Cut(w.rest, "!")
			w.rest = strings.TrimLeft(w.rest, "0123456789")
			w.versioned = true
		case strings.HasPrefix(w.rest, "/*"):
			_, w.rest, _ = strings.Cut(w.rest[2:], "*/")
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
